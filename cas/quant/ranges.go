package quant

import (
	"math"

	"ckptfs/cas/half"
)

// What fields does, here for the blocks of a slab of Q4_K or Q5_K, where all parts are numbers and what
// differs is read.

// slabBlocks is how many blocks of 256 elements a slab has.
const slabBlocks = Slab / 256

// ranges are what is known of the parts of a slab, eight a block, and of its blocks. The kernels know where
// its fields lie.
type ranges struct {
	rg, lo          [8 * slabBlocks]float32 // max - min(min, 0), and -min(min, 0)
	mostRange       [slabBlocks]float32     // the greatest of a block
	mostLow         [slabBlocks]float32
	step, low       [slabBlocks]float32 // d and m
	perStep, perLow [slabBlocks]float32 // 1/(d q) and 1/m, or 0
	scales, offsets [slabBlocks]uint64  // eight numbers of six bits: differences, then they themselves
}

// spreadPortable sets the ranges of blocks to those of their parts' least and greatest numbers.
func (r *ranges) spreadPortable(e *extremes, blocks int) {
	for i := range blocks {
		var mostRange, mostLow uint32 // as bits; none is negative
		for j := 8 * i; j < 8*i+8; j++ {
			low := e.min[j]
			if low > 0 {
				low = 0
			}
			r.rg[j], r.lo[j] = e.max[j]-low, 0-low
			mostRange, mostLow = max(mostRange, bits(r.rg[j])), max(mostLow, bits(r.lo[j]))
		}
		r.mostRange[i], r.mostLow[i] = math.Float32frombits(mostRange), math.Float32frombits(mostLow)
	}
}

// factorsPortable sets the factors of blocks, of so many levels, and makes scales and offsets of what they
// differ by.
func (r *ranges) factorsPortable(f *factors, levels float32, blocks int) {
	const six = 0x3f * each
	for i := range blocks {
		rg, lo := (*[8]float32)(r.rg[8*i:]), (*[8]float32)(r.lo[8*i:])
		scales := added(steady8Portable(rg, r.perStep[i], 0, 63), r.scales[i]) & six
		offsets := added(steady8Portable(lo, r.perLow[i], 0, 63), r.offsets[i]) & six
		as, bs := (*[8]float32)(f.a[8*i:]), (*[8]float32)(f.b[8*i:])
		for j := range as {
			a := float32(r.step[i] * float32(int32(scales>>(8*j)&0xff)))
			b := float32(r.low[i] * float32(int32(offsets>>(8*j)&0xff)))
			if a == 0 {
				if a, b = rg[j]/levels, lo[j]; a == 0 {
					a = nan
				}
			}
			as[j], bs[j] = a, b
		}
		r.scales[i], r.offsets[i] = scales, offsets
	}
}

// restoreRanges is fields for so many blocks, of which p has the bytes. It does nothing and returns false
// where a part may not be all numbers.
func (q *Quantiser) restoreRanges(c *coder, p []byte, e *extremes, f *factors, blocks int) bool {
	const field, six = 63, 0x3f * each
	levels := float32(15)
	if q.Format == Q5_K {
		levels = 31
	}
	var r ranges
	r.spread(e, blocks)
	for i := range blocks {
		if r.mostRange[i] == inf {
			return false
		}
	}
	size := shapes[q.Format].bytes
	var lows, middle, high [slabBlocks]byte
	c.some(lowStream, lows[:blocks])
	c.low += 2 * blocks
	c.some(dStream, middle[:blocks])
	c.some(dStream+1, high[:blocks])
	for i := range blocks {
		z := uint16(lows[i]&15) | uint16(middle[i])<<4 | uint16(high[i])<<12
		c.wrong = c.wrong || high[i] > 15
		d := moved16(f16(r.mostRange[i]/levels/field), z)
		step := half.FromF16(d)
		r.step[i], r.perStep[i] = step, reciprocal(float32(step*levels))
		le.PutUint16(p[i*size:], d)
	}
	c.some(mStream, middle[:blocks])
	c.some(mStream+1, high[:blocks])
	for i := range blocks {
		z := uint16(lows[i]>>4) | uint16(middle[i])<<4 | uint16(high[i])<<12
		c.wrong = c.wrong || high[i] > 15
		m := moved16(f16(r.mostLow[i]/field), z)
		low := half.FromF16(m)
		r.low[i], r.perLow[i] = low, reciprocal(low)
		le.PutUint16(p[i*size+2:], m)
	}
	var all uint64
	for i := range blocks {
		r.scales[i] = c.eight(scaleStream)
		all |= r.scales[i]
	}
	c.someGrouped(groupStream, r.offsets[:blocks], r.scales[:blocks])
	for _, y := range r.offsets[:blocks] {
		all |= y
	}
	c.wrong = c.wrong || all&^six != 0
	r.factors(f, levels, blocks)
	for i := range blocks {
		scales, offsets := r.scales[i], r.offsets[i]
		p := p[i*size+4:][:12]
		le.PutUint32(p, uint32(scales|scales>>32>>4&(3*each)<<6))
		le.PutUint32(p[4:], uint32(offsets|offsets>>32>>4&(3*each)<<6))
		le.PutUint32(p[8:], uint32(scales>>32&(15*each)|offsets>>32&(15*each)<<4))
	}
	return true
}

// moved16 is the number of binary16 that is as many places from v as z says, as it is stored.
func moved16(v, z uint16) uint16 {
	return half.FromOrdinal16(half.Ordinal16(v) + (z>>1 ^ -(z & 1)))
}
