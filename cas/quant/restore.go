package quant

import (
	"math"

	"ckptfs/cas/half"
)

// What fields does, here for the formats that are read most, where all parts are numbers and nothing is out
// of bounds: eight parts at a time, in one word.

const each = 0x0101010101010101 // of eight bytes

// eight are the next eight bytes of stream i.
func (c *coder) eight(i int) uint64 {
	p, at := c.s[i], c.at[i]
	if len(p) == 0 {
		return 0
	}
	if at+8 > len(p) {
		c.wrong = true
		return 0
	}
	c.at[i] = at + 8
	return le.Uint64(p[at:])
}

// eightGrouped are eight bytes, each from the stream from i on that the byte of other says.
func (c *coder) eightGrouped(i int, other uint64) (all uint64) {
	for j := 0; j < 64; j += 8 {
		k := i + int(min(other>>j&0xff, groups-1))
		if p, at := c.s[k], c.at[k]; at < len(p) {
			all |= uint64(p[at]) << j
			c.at[k] = at + 1
		} else if len(p) > 0 {
			c.wrong = true
		}
	}
	return all
}

// added are eight numbers: predicted ones and, as they are stored, differences.
func added(predicted, z uint64) uint64 {
	r := z>>1&(0x7f*each) ^ z&each*0xff
	return predicted&(0x7f*each) + r&(0x7f*each) ^ (predicted^r)&(0x80*each)
}

// steady8Portable is steady for eight numbers.
func steady8Portable(v *[8]float32, by, lo, hi float32) (all uint64) {
	if !isFinite(by) {
		for j, v := range v {
			all |= uint64(round(float32(v*by), lo, hi)) & 0xff << (8 * j)
		}
		return all
	}
	least, most := int64(lo), int64(hi)
	for j, v := range v {
		n := least
		if v = float32(v * by); v == v { // of infinity times 0 processors differ in the sign
			n = int64(int32(bits(v+magic))) - magicBits
		}
		all |= uint64(min(max(n, least), most)) & 0xff << (8 * j)
	}
	return all
}

// restoreRanges is ranges for Q4_K and Q5_K. It does nothing and returns false where a part is not all
// numbers.
func (q *Quantiser) restoreRanges(c *coder, p []byte, e *extremes, f *factors, i int) bool {
	const field, six = 63, 0x3f * each
	levels := float32(15)
	if q.Format == Q5_K {
		levels = 31
	}
	var rg, lo [8]float32
	var mostRange, mostLow uint32 // as bits; none is negative
	least, most := (*[8]float32)(e.min[8*i:]), (*[8]float32)(e.max[8*i:])
	for j, hi := range most {
		if hi == inf {
			return false
		}
		low := least[j]
		if low > 0 {
			low = 0
		}
		rg[j], lo[j] = hi-low, 0-low
		mostRange, mostLow = max(mostRange, bits(rg[j])), max(mostLow, bits(lo[j]))
	}
	d := c.half(dStream, 0, f16(math.Float32frombits(mostRange)/levels/field))
	m := c.half(mStream, 0, f16(math.Float32frombits(mostLow)/field))
	step, low := half.FromF16(d), half.FromF16(m)
	perStep, perLow := reciprocal(float32(step*levels)), reciprocal(low)
	scales, offsets := steady8(&rg, perStep, 0, field), steady8(&lo, perLow, 0, field)
	z := c.eight(scaleStream)
	y := c.eightGrouped(groupStream, z)
	c.wrong = c.wrong || (z|y)&^six != 0
	scales, offsets = added(scales, z)&six, added(offsets, y)&six
	as, bs := (*[8]float32)(f.a[8*i:]), (*[8]float32)(f.b[8*i:])
	for j := range as {
		a := float32(step * float32(int32(scales>>(8*j)&0xff)))
		b := float32(low * float32(int32(offsets>>(8*j)&0xff)))
		if a == 0 {
			if a, b = rg[j]/levels, lo[j]; a == 0 {
				a = nan
			}
		}
		as[j], bs[j] = a, b
	}
	le.PutUint16(p, d)
	le.PutUint16(p[2:], m)
	le.PutUint32(p[4:], uint32(scales|scales>>32>>4&(3*each)<<6))
	le.PutUint32(p[8:], uint32(offsets|offsets>>32>>4&(3*each)<<6))
	le.PutUint32(p[12:], uint32(scales>>32&(15*each)|offsets>>32&(15*each)<<4))
	return true
}

// restoreMagnitudes is magnitudes for Q6_K, in the same way.
func (q *Quantiser) restoreMagnitudes(c *coder, p []byte, e *extremes, f *factors, i int, x []float32) bool {
	var s [16]float32
	var top, magnitude uint32
	least, most := (*[16]float32)(e.min[16*i:]), (*[16]float32)(e.max[16*i:])
	for j, hi := range most {
		if hi == inf {
			return false
		}
		h, l := bits(hi), bits(least[j])
		above, below := h&math.MaxInt32, l&math.MaxInt32
		if below > above {
			h, above = l, below
		} else if below == above && h != l {
			h = bits(e.greatest(16*i+j, x[16*j:16*j+16]))
		}
		s[j] = math.Float32frombits(h)
		if above > magnitude {
			top, magnitude = h, above
		}
	}
	d := c.half(dStream, 0, f16(math.Float32frombits(top)/(128*32)))
	step := half.FromF16(d)
	by := -reciprocal(float32(step * 32))
	as, bs := (*[16]float32)(f.a[16*i:]), (*[16]float32)(f.b[16*i:])
	for k := range 2 {
		s := (*[8]float32)(s[8*k:])
		var scales uint64
		if step != 0 {
			scales = steady8(s, by, -128, 127)
		}
		group := (scales ^ scales>>7&each*0xff) >> 4 & (7 * each)
		scales = added(scales, c.eightGrouped(groupStream, group))
		for j := range s {
			a := float32(step * float32(int32(int8(scales>>(8*j)))))
			if a == 0 {
				if a = s[j] / -32; a == 0 {
					a = nan
				}
			}
			as[8*k+j], bs[8*k+j] = a, 0
		}
		le.PutUint64(p[192+8*k:], scales)
	}
	le.PutUint16(p[208:], d)
	return true
}
