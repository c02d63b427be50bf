package codec

import "ckptfs/cas/rans"

// Bitmaps repeat themselves. Of kernels of 3 by 3 of which only the middle was ever used one element in nine
// is not zero: every 9 bytes of the bitmap are what the 9 before them were. Where whole rows are zero, a byte
// mostly is what the byte before it was.

const (
	// maxPeriod is the longest period that is looked for, in bytes. Kernels of 7 by 7 have one of 49.
	maxPeriod = 64
	// minPeriodic is the stored size of a bitmap from which looking for a period pays.
	minPeriodic = 128
)

// findPeriod replaces the bitmap of src by its differences from what it was a period before, if it has a
// period and the differences take less.
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

// periodOf is the period after which most words of a sample of p repeat. It is 0 if fewer than one in eight
// do.
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
				differ += int((x | -x) >> 63) // a branch would be mispredicted
			}
		}
		if differ < least {
			best, least = period, differ
		}
	}
	return best
}

// lag sets d, as long as p, to p with each byte but the first ones XORed with the byte a period before.
func lag(d, p []byte, period int) {
	i := copy(d[:min(period, len(d))], p)
	for ; i+8 <= len(p); i += 8 {
		le.PutUint64(d[i:], le.Uint64(p[i:])^le.Uint64(p[i-period:]))
	}
	for ; i < len(p); i++ {
		d[i] = p[i] ^ p[i-period]
	}
}

// unlag undoes lag: p becomes what it was. spare is as long. The lag of a lag is the lag of twice the period.
// So the period is doubled until a load need not wait for the stores just before it.
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

// unlagOne is unlag for a period of 1, of which most words are zeros.
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
