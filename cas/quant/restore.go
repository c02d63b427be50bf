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
func (c *coder) eightGrouped(i int, other uint64) uint64 {
	var all [1]uint64
	c.someGrouped(i, all[:], []uint64{other})
	return all[0]
}

// someGrouped sets all to bytes, each from the stream from i on that the byte of other says.
func (c *coder) someGrouped(i int, all, other []uint64) {
	var at [groups]int // here the bounds are known
	copy(at[:], c.at[i:])
	s := (*[groups][]byte)(c.s[i:])
	other = other[:len(all)]
	for b := range all {
		var eight uint64
		for j, o := 0, other[b]; j < 64; j, o = j+8, o>>8 {
			k := min(o&0xff, groups-1)
			if p, at := s[k], &at[k]; *at < len(p) {
				eight |= uint64(p[*at]) << j
				*at++
			} else if len(p) > 0 {
				c.wrong = true
			}
		}
		all[b] = eight
	}
	copy(c.at[i:], at[:])
}

// some sets p to the next bytes of stream i.
func (c *coder) some(i int, p []byte) {
	if s := c.s[i]; len(s) > 0 {
		n := copy(p, s[c.at[i]:])
		c.at[i] += n
		c.wrong = c.wrong || n < len(p)
		p = p[n:]
	}
	clear(p)
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

// restoreMagnitudes is magnitudes for Q6_K. It does nothing and returns false where a part is not all
// numbers.
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
