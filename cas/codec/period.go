package codec

import "ckptfs/cas/rans"

// Bitmaps repeat themselves: of kernels of 3 by 3 of which only the middle was ever used one element in nine
// is not zero, so that 9 bytes of a bitmap are what the 9 before them were; and where whole rows are zero,
// one byte mostly is what the one before was.

const (
	// maxPeriod is the longest period that is looked for, in bytes: that of kernels of 7 by 7 is 49.
	maxPeriod = 64
	// minPeriodic is the size, stored, from which it is worth while to look for one.
	minPeriodic = 128
)

// findPeriod sets the bitmap of src to its differences from what it was a period before, where it has one and
// they take less.
func (s *planeState) findPeriod(src *source) {
	n := len(src.bitmap)
	size := src.ones.Estimate(n)
	if size < minPeriodic {
		return
	}
	period := periodOf(src.bitmap)
	if period == 0 {
		return
	}
	d := s.bitmap[:n]
	lag(d, src.bitmap, period)
	var ones rans.Counts
	ones.Count(d)
	if ones.Estimate(n) < size-size/minGain {
		copy(src.bitmap, d)
		src.ones, src.period = ones, period
	}
}

// periodOf is the period after which the most words of a sample of p are what they were before, if those are
// one in eight; else 0.
func periodOf(p []byte) int {
	const windows, length = 4, 64
	if len(p) < 2*windows*(maxPeriod+length) {
		return 0
	}
	best, least := 0, windows*length/8*7/8+1
	for period := 1; period <= maxPeriod && least > 0; period++ {
		differ := 0
		for i := 0; i < windows && differ < least; i++ {
			at := maxPeriod + (len(p)-maxPeriod-length)/(windows-1)*i
			now, before := (*[length]byte)(p[at:]), (*[length]byte)(p[at-period:])
			for k := 0; k < length; k += 8 {
				x := le.Uint64(now[k:]) ^ le.Uint64(before[k:])
				differ += int((x | -x) >> 63) // asking would cost mispredictions
			}
		}
		if differ < least {
			best, least = period, differ
		}
	}
	return best
}

// lag sets d to p, each byte but the first ones XORed with the one a period before. They are as long.
func lag(d, p []byte, period int) {
	i := copy(d[:min(period, len(d))], p)
	for ; i+8 <= len(p); i += 8 {
		le.PutUint64(d[i:], le.Uint64(p[i:])^le.Uint64(p[i-period:]))
	}
	for ; i < len(p); i++ {
		d[i] = p[i] ^ p[i-period]
	}
}

// unlag undoes lag in place; spare is as long. The lag of a lag is that of twice the period, which gets to
// where a load need not wait for the stores just before it.
func unlag(p []byte, period int, spare []byte) {
	if period == 1 {
		unlagOne(p)
		return
	}
	for ; period < 64; period *= 2 {
		lag(spare, p, period)
		copy(p, spare)
	}
	i := period
	for ; i+8 <= len(p); i += 8 {
		le.PutUint64(p[i:], le.Uint64(p[i:])^le.Uint64(p[i-period:]))
	}
	for ; i < len(p); i++ {
		p[i] ^= p[i-period]
	}
}

// unlagOne is unlag for what was the same one byte before: most words of it are zeros.
func unlagOne(p []byte) {
	const each = 0x0101010101010101
	last := uint64(0) // the byte before, 8 times
	for ; len(p) >= 8; p = p[8:] {
		v := le.Uint64(p)
		if v == 0 {
			le.PutUint64(p, last)
			continue
		}
		v ^= v << 8
		v ^= v << 16
		v ^= v<<32 ^ last
		le.PutUint64(p, v)
		last = v >> 56 * each
	}
	for i := range p {
		p[i] ^= byte(last)
		last = uint64(p[i])
	}
}
