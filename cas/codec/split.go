package codec

import (
	"encoding/binary"
	"math/bits"
)

// Splitting and merging are transpositions of small byte matrices held in 64-bit words. Each stage exchanges
// the upper halves of one word's fields with the lower halves of another's, for fields of 8, 4 and 2 bytes.
// That is portable and several times faster than a loop over bytes. On amd64 these functions are the twins of
// kernels. The loops go through arrays of known size, so that the compiler need not check bounds within. What
// makes no whole array is done one element after the other.

var le = binary.LittleEndian

const (
	evenBytes = 0x00ff00ff00ff00ff // the lower byte of every 2
	evenPairs = 0x0000ffff0000ffff // the lower 2 bytes of every 4
	lowHalf   = 0x00000000ffffffff
	lowBits   = 0x0001000100010001 // the lowest bit of every 2 bytes
	block     = 64                 // elements
)

// split takes the elements of src, of w bytes, apart into p[0:w], least significant bytes first. If rot is 1
// every element is rotated left by one bit first, else rot is 0. Each plane has room for len(src)/w bytes.
func split(p *[8][]byte, src []byte, w, rot int) {
	switch w {
	case 1:
		copy(p[0], src)
	case 2:
		split2(p[0], p[1], src, rot)
	case 4:
		split4(p[0], p[1], p[2], p[3], src, rot)
	case 8:
		split8(p, src, rot)
	}
}

// merge undoes split.
func merge(dst []byte, p *[8][]byte, w, rot int) {
	switch w {
	case 1:
		copy(dst, p[0])
	case 2:
		merge2(dst, p[0], p[1], rot)
	case 4:
		merge4(dst, p[0], p[1], p[2], p[3], rot)
	case 8:
		merge8(dst, p, rot)
	}
}

// These exchange the upper half of every field of a with the lower half of the same field of b.
func exchangeHalves(a, b uint64) (uint64, uint64) { return a&lowHalf | b<<32, a>>32 | b&^lowHalf }
func exchangePairs(a, b uint64) (uint64, uint64) {
	t := (a>>16 ^ b) & evenPairs
	return a ^ t<<16, b ^ t
}
func exchangeBytes(a, b uint64) (uint64, uint64) {
	t := (a>>8 ^ b) & evenBytes
	return a ^ t<<8, b ^ t
}

func split2Portable(p0, p1, src []byte, rot int) {
	for len(src) >= 2*block && len(p0) >= block && len(p1) >= block {
		s, d0, d1 := (*[2 * block]byte)(src), (*[block]byte)(p0), (*[block]byte)(p1)
		for i := 0; i < block; i += 8 {
			a := uint64(le.Uint32(s[2*i:])) | uint64(le.Uint32(s[2*i+8:]))<<32    // elements 0 1 4 5
			b := uint64(le.Uint32(s[2*i+4:])) | uint64(le.Uint32(s[2*i+12:]))<<32 // 2 3 6 7
			if rot != 0 {
				a = a<<1&^lowBits | a>>15&lowBits
				b = b<<1&^lowBits | b>>15&lowBits
			}
			a, b = exchangePairs(a, b) // 0 2 4 6, 1 3 5 7
			a, b = exchangeBytes(a, b)
			le.PutUint64(d0[i:], a)
			le.PutUint64(d1[i:], b)
		}
		src, p0, p1 = src[2*block:], p0[block:], p1[block:]
	}
	for i := range len(src) / 2 {
		v := bits.RotateLeft16(le.Uint16(src[2*i:]), rot)
		p0[i], p1[i] = byte(v), byte(v>>8)
	}
}

func merge2Portable(dst, p0, p1 []byte, rot int) {
	for len(dst) >= 2*block && len(p0) >= block && len(p1) >= block {
		d, s0, s1 := (*[2 * block]byte)(dst), (*[block]byte)(p0), (*[block]byte)(p1)
		for i := 0; i < block; i += 8 {
			a, b := exchangeBytes(le.Uint64(s0[i:]), le.Uint64(s1[i:])) // elements 0 2 4 6, 1 3 5 7
			if rot != 0 {
				a = a>>1&^(lowBits<<15) | a&lowBits<<15
				b = b>>1&^(lowBits<<15) | b&lowBits<<15
			}
			a, b = exchangePairs(a, b)  // 0 1 4 5, 2 3 6 7
			a, b = exchangeHalves(a, b) // 0 1 2 3, 4 5 6 7
			le.PutUint64(d[2*i:], a)
			le.PutUint64(d[2*i+8:], b)
		}
		dst, p0, p1 = dst[2*block:], p0[block:], p1[block:]
	}
	for i := range len(dst) / 2 {
		le.PutUint16(dst[2*i:], bits.RotateLeft16(uint16(p0[i])|uint16(p1[i])<<8, -rot))
	}
}

func split4Portable(p0, p1, p2, p3, src []byte, rot int) {
	for len(src) >= 4*block && len(p0) >= block && len(p1) >= block && len(p2) >= block && len(p3) >= block {
		s := (*[4 * block]byte)(src)
		d0, d1, d2, d3 := (*[block]byte)(p0), (*[block]byte)(p1), (*[block]byte)(p2), (*[block]byte)(p3)
		for i := 0; i < block; i += 8 {
			a := two(le.Uint32(s[4*i:]), le.Uint32(s[4*i+16:]), rot)    // elements 0 4
			b := two(le.Uint32(s[4*i+4:]), le.Uint32(s[4*i+20:]), rot)  // 1 5
			c := two(le.Uint32(s[4*i+8:]), le.Uint32(s[4*i+24:]), rot)  // 2 6
			d := two(le.Uint32(s[4*i+12:]), le.Uint32(s[4*i+28:]), rot) // 3 7
			a, c = exchangePairs(a, c)
			b, d = exchangePairs(b, d)
			a, b = exchangeBytes(a, b)
			c, d = exchangeBytes(c, d)
			le.PutUint64(d0[i:], a)
			le.PutUint64(d1[i:], b)
			le.PutUint64(d2[i:], c)
			le.PutUint64(d3[i:], d)
		}
		src, p0, p1, p2, p3 = src[4*block:], p0[block:], p1[block:], p2[block:], p3[block:]
	}
	for i := range len(src) / 4 {
		v := bits.RotateLeft32(le.Uint32(src[4*i:]), rot)
		p0[i], p1[i], p2[i], p3[i] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
	}
}

func two(lo, hi uint32, rot int) uint64 {
	return uint64(bits.RotateLeft32(lo, rot)) | uint64(bits.RotateLeft32(hi, rot))<<32
}

func merge4Portable(dst, p0, p1, p2, p3 []byte, rot int) {
	for len(dst) >= 4*block && len(p0) >= block && len(p1) >= block && len(p2) >= block && len(p3) >= block {
		o := (*[4 * block]byte)(dst)
		s0, s1, s2, s3 := (*[block]byte)(p0), (*[block]byte)(p1), (*[block]byte)(p2), (*[block]byte)(p3)
		for i := 0; i < block; i += 8 {
			a, b := exchangeBytes(le.Uint64(s0[i:]), le.Uint64(s1[i:]))
			c, d := exchangeBytes(le.Uint64(s2[i:]), le.Uint64(s3[i:]))
			a, c = exchangePairs(a, c) // elements 0 4, 2 6
			b, d = exchangePairs(b, d) // 1 5, 3 7
			le.PutUint32(o[4*i:], bits.RotateLeft32(uint32(a), -rot))
			le.PutUint32(o[4*i+4:], bits.RotateLeft32(uint32(b), -rot))
			le.PutUint32(o[4*i+8:], bits.RotateLeft32(uint32(c), -rot))
			le.PutUint32(o[4*i+12:], bits.RotateLeft32(uint32(d), -rot))
			le.PutUint32(o[4*i+16:], bits.RotateLeft32(uint32(a>>32), -rot))
			le.PutUint32(o[4*i+20:], bits.RotateLeft32(uint32(b>>32), -rot))
			le.PutUint32(o[4*i+24:], bits.RotateLeft32(uint32(c>>32), -rot))
			le.PutUint32(o[4*i+28:], bits.RotateLeft32(uint32(d>>32), -rot))
		}
		dst, p0, p1, p2, p3 = dst[4*block:], p0[block:], p1[block:], p2[block:], p3[block:]
	}
	for i := range len(dst) / 4 {
		v := uint32(p0[i]) | uint32(p1[i])<<8 | uint32(p2[i])<<16 | uint32(p3[i])<<24
		le.PutUint32(dst[4*i:], bits.RotateLeft32(v, -rot))
	}
}

func split8Portable(p *[8][]byte, src []byte, rot int) {
	n := len(src) / 8
	i := 0
	for ; i+8 <= n; i += 8 {
		s := (*[64]byte)(src[8*i:])
		a, b, c, d, e, f, g, h := transpose8(
			bits.RotateLeft64(le.Uint64(s[0:]), rot), bits.RotateLeft64(le.Uint64(s[8:]), rot),
			bits.RotateLeft64(le.Uint64(s[16:]), rot), bits.RotateLeft64(le.Uint64(s[24:]), rot),
			bits.RotateLeft64(le.Uint64(s[32:]), rot), bits.RotateLeft64(le.Uint64(s[40:]), rot),
			bits.RotateLeft64(le.Uint64(s[48:]), rot), bits.RotateLeft64(le.Uint64(s[56:]), rot))
		le.PutUint64(p[0][i:], a)
		le.PutUint64(p[1][i:], b)
		le.PutUint64(p[2][i:], c)
		le.PutUint64(p[3][i:], d)
		le.PutUint64(p[4][i:], e)
		le.PutUint64(p[5][i:], f)
		le.PutUint64(p[6][i:], g)
		le.PutUint64(p[7][i:], h)
	}
	for ; i < n; i++ {
		v := bits.RotateLeft64(le.Uint64(src[8*i:]), rot)
		for k := range p {
			p[k][i] = byte(v >> (8 * k))
		}
	}
}

func merge8Portable(dst []byte, p *[8][]byte, rot int) {
	n := len(dst) / 8
	i := 0
	for ; i+8 <= n; i += 8 {
		a, b, c, d, e, f, g, h := transpose8(
			le.Uint64(p[0][i:]), le.Uint64(p[1][i:]), le.Uint64(p[2][i:]), le.Uint64(p[3][i:]),
			le.Uint64(p[4][i:]), le.Uint64(p[5][i:]), le.Uint64(p[6][i:]), le.Uint64(p[7][i:]))
		o := (*[64]byte)(dst[8*i:])
		le.PutUint64(o[0:], bits.RotateLeft64(a, -rot))
		le.PutUint64(o[8:], bits.RotateLeft64(b, -rot))
		le.PutUint64(o[16:], bits.RotateLeft64(c, -rot))
		le.PutUint64(o[24:], bits.RotateLeft64(d, -rot))
		le.PutUint64(o[32:], bits.RotateLeft64(e, -rot))
		le.PutUint64(o[40:], bits.RotateLeft64(f, -rot))
		le.PutUint64(o[48:], bits.RotateLeft64(g, -rot))
		le.PutUint64(o[56:], bits.RotateLeft64(h, -rot))
	}
	for ; i < n; i++ {
		var v uint64
		for k := range p {
			v |= uint64(p[k][i]) << (8 * k)
		}
		le.PutUint64(dst[8*i:], bits.RotateLeft64(v, -rot))
	}
}

// transpose8 exchanges byte i of word k with byte k of word i. The words stay in registers.
func transpose8(a, b, c, d, e, f, g, h uint64) (_, _, _, _, _, _, _, _ uint64) {
	a, e = exchangeHalves(a, e)
	b, f = exchangeHalves(b, f)
	c, g = exchangeHalves(c, g)
	d, h = exchangeHalves(d, h)
	a, c = exchangePairs(a, c)
	b, d = exchangePairs(b, d)
	e, g = exchangePairs(e, g)
	f, h = exchangePairs(f, h)
	a, b = exchangeBytes(a, b)
	c, d = exchangeBytes(c, d)
	e, f = exchangeBytes(e, f)
	g, h = exchangeBytes(g, h)
	return a, b, c, d, e, f, g, h
}
