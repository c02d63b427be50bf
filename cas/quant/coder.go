package quant

import "ckptfs/cas/half"

// Streams are what blocks have that does not follow from the numbers they were made of. The package comment
// says what is in which. One without a byte stands for as many zeros as are asked for.
type Streams [streams][]byte

const (
	lowStream    = 0 // the low four bits of what d and m differ by
	dStream      = 1 // the next eight bits of d, the highest four
	mStream      = 3 // the same of m
	scaleStream  = 5
	groupStream  = 6 // in groups
	maskStream   = groupStream + groups
	codeStream   = maskStream + 1 // in codeGroups
	streams      = codeStream + codeGroups
	groups       = 8
	codeGroups   = 8
	factorStream = 0 // of scales that lie apart: four planes
)

// FirstCorrection is the first of the Streams that correct codes; those before it are of scales and offsets.
const FirstCorrection = maskStream

// A coder takes numbers that differ from predicted ones out of streams, or appends them. Each method returns
// the number: the one it is given, or the one that the stream makes of the prediction.
type coder struct {
	s     *Streams
	reads bool
	at    [streams]int
	low   int  // how many times four bits of lowStream are in use
	wrong bool // a stream ended early, or had a number out of bounds
}

func (c *coder) byte(i int, v byte) byte {
	if !c.reads {
		c.s[i] = append(c.s[i], v)
		return v
	}
	p, at := c.s[i], c.at[i]
	if len(p) == 0 {
		return 0
	}
	if at >= len(p) {
		c.wrong = true
		return 0
	}
	c.at[i] = at + 1
	return p[at]
}

// nibble is of lowStream.
func (c *coder) nibble(v byte) byte {
	at := c.low / 2
	shift := c.low & 1 * 4
	c.low++
	if !c.reads {
		if shift == 0 {
			c.s[lowStream] = append(c.s[lowStream], v)
		} else {
			c.s[lowStream][at] |= v << 4
		}
		return v
	}
	p := c.s[lowStream]
	if len(p) == 0 {
		return 0
	}
	if at >= len(p) {
		c.wrong = true
		return 0
	}
	c.at[lowStream] = at + 1
	return p[at] >> shift & 15
}

// A difference is stored as its magnitude and, in the lowest bit, its sign: 0, -1, 1, -2, …
func zigzag(r int8) byte   { return byte(r<<1) ^ byte(r>>7) }
func unzigzag(z byte) int8 { return int8(z>>1) ^ -int8(z&1) }

// field is a number of so many bits; turn: its difference is stored with the other sign.
func (c *coder) field(i int, v, predicted byte, bits uint, turn bool) (_, stored byte) {
	mask := byte(1<<bits - 1)
	var z byte
	if !c.reads {
		r := v - predicted
		if turn {
			r = -r
		}
		z = zigzag(int8(r<<(8-bits)) >> (8 - bits))
		c.s[i] = append(c.s[i], z)
		return v, z
	}
	z = c.byte(i, 0)
	if z&^mask != 0 {
		c.wrong = true
	}
	r := byte(unzigzag(z))
	if turn {
		r = -r
	}
	return (predicted + r) & mask, z
}

// fields are numbers of so many bits, up to 16; stored is what of each is in stream i.
func (c *coder) fields(i int, v []byte, predicted *[16]byte, bits uint, stored *[16]byte) {
	if !c.reads {
		for j := range v {
			_, stored[j&15] = c.field(i, v[j], predicted[j&15], bits, false)
		}
		return
	}
	if len(c.s[i]) > 0 {
		n := copy(stored[:len(v)], c.s[i][c.at[i]:])
		c.at[i] += n
		c.wrong = c.wrong || n < len(v)
	}
	mask := byte(1<<bits - 1)
	var all byte
	for j := range v {
		z := stored[j&15]
		all |= z
		v[j] = (predicted[j&15] + byte(unzigzag(z))) & mask
	}
	c.wrong = c.wrong || all&^mask != 0
}

// grouped are numbers of which each is in a stream from i on, by another number.
func (c *coder) grouped(i int, v []byte, predicted *[16]byte, bits uint, other *[16]byte) {
	if !c.reads {
		for j := range v {
			c.field(i+int(min(other[j&15], groups-1)), v[j], predicted[j&15], bits, false)
		}
		return
	}
	mask := byte(1<<bits - 1)
	var all byte
	for j := range v {
		k := i + int(min(other[j&15], groups-1))
		var z byte
		if p, at := c.s[k], c.at[k]; at < len(p) {
			z = p[at]
			c.at[k]++
		} else if len(p) > 0 {
			c.wrong = true
		}
		all |= z
		v[j] = (predicted[j&15] + byte(unzigzag(z))) & mask
	}
	c.wrong = c.wrong || all&^mask != 0
}

// half is a scale in binary16; its eight middle bits are in stream i, the highest in the next.
func (c *coder) half(i int, v, predicted uint16) uint16 {
	if !c.reads {
		r := int16(half.Ordinal16(v) - half.Ordinal16(predicted))
		z := uint16(r<<1) ^ uint16(r>>15)
		c.nibble(byte(z & 15))
		c.byte(i, byte(z>>4))
		c.byte(i+1, byte(z>>12))
		return v
	}
	z := uint16(c.nibble(0)) | uint16(c.byte(i, 0))<<4
	top := c.byte(i+1, 0)
	if top > 15 {
		c.wrong = true
	}
	z |= uint16(top) << 12
	r := z>>1 ^ -(z & 1)
	return half.FromOrdinal16(half.Ordinal16(predicted) + r)
}

// word is a scale that lies apart, of 32 bits, 16 or 8. Its bytes lie in streams of their own, from i on, the
// lowest first. Those of 8 bits count as they are.
func (c *coder) word(i int, v, predicted uint32, size int) uint32 {
	var z uint32
	switch size {
	case 1:
		z = uint32(zigzag(int8(v - predicted)))
	case 2:
		r := int16(half.Ordinal16(uint16(v)) - half.Ordinal16(uint16(predicted)))
		z = uint32(uint16(r<<1) ^ uint16(r>>15))
	default:
		r := int32(half.Ordinal32(v) - half.Ordinal32(predicted))
		z = uint32(r<<1) ^ uint32(r>>31)
	}
	var got uint32
	for k := range size {
		got |= uint32(c.byte(i+k, byte(z>>(8*k)))) << (8 * k)
	}
	r := got>>1 ^ -(got & 1)
	switch size {
	case 1:
		return (predicted + r) & 0xff
	case 2:
		return uint32(half.FromOrdinal16(half.Ordinal16(uint16(predicted)) + uint16(r)))
	}
	return half.FromOrdinal32(half.Ordinal32(predicted) + r)
}

// done reports whether all was taken that the streams have, and nothing else.
func (c *coder) done() bool {
	for i, p := range c.s {
		if len(p) != c.at[i] && len(p) > 0 {
			return false
		}
	}
	return !c.wrong && (c.low&1 == 0 || len(c.s[lowStream]) == 0 || c.s[lowStream][c.low/2]>>4 == 0)
}

func f16(x float32) uint16 { return half.ToF16(bits(x)) }
