package codec

import (
	"math"
	"math/bits"
	"sync"
)

// packPortable sets bitmap to where p is not zero, and dst to the bytes there, which it returns. It may write
// 8 more bytes of dst.
func packPortable(dst, bitmap, p []byte) []byte {
	table := moves()
	j := 0
	for i := range bitmap {
		var v uint64
		if len(p)-8*i >= 8 {
			v = le.Uint64(p[8*i:])
		} else {
			for k, c := range p[8*i:] {
				v |= uint64(c) << (8 * k)
			}
		}
		m := nonZero(v)
		bitmap[i] = m
		if v == 0 {
			continue
		}
		le.PutUint64(dst[j:], gather(v, &table[m]))
		j += bits.OnesCount8(m)
	}
	return dst[:j]
}

// unionPortable ors the planes' bytes from i on into any, and sets zero to 1 where that is zero, else to 0.
func unionPortable(any, zero []byte, planes [][]byte, i int) {
	const low7, ones = 0x7f7f7f7f7f7f7f7f, 0x0101010101010101
	for ; i+8 <= len(any); i += 8 {
		var v uint64
		for _, p := range planes {
			v |= le.Uint64(p[i:])
		}
		le.PutUint64(any[i:], v)
		le.PutUint64(zero[i:], (v&low7+low7|v)>>7&ones^ones)
	}
	for ; i < len(any); i++ {
		any[i], zero[i] = 0, 0
		for _, p := range planes {
			any[i] |= p[i]
		}
		if any[i] == 0 {
			zero[i] = 1
		}
	}
}

// onesPortable is how many bits are set in p.
func onesPortable(p []byte) int {
	n := 0
	for ; len(p) >= 8; p = p[8:] {
		n += bits.OnesCount64(le.Uint64(p))
	}
	for _, m := range p {
		n += bits.OnesCount8(m)
	}
	return n
}

// nonZero has bit i set when byte i of v is not zero.
func nonZero(v uint64) byte {
	const low7 = 0x7f7f7f7f7f7f7f7f
	v = (v&low7 + low7 | v) &^ low7
	return byte(v >> 7 * 0x0102040810204080 >> 56)
}

// scatterPortable puts the bytes of rest from j on where bitmap has bits set, and zeros elsewhere. It may
// read the last 8 bytes of rest, and does not use them.
func scatterPortable(p, bitmap []byte, rest *[maxPlane + 8]byte, j int) {
	table := moves()
	for len(bitmap) >= 8 && len(p) >= 64 { // rows of a matrix are often all there or not at all
		ms, q := le.Uint64(bitmap), (*[64]byte)(p)
		switch ms {
		case 0:
			*q = [64]byte{}
		case math.MaxUint64:
			j += copy(q[:], rest[j:])
		default:
			for i := 0; i < 64; i += 8 {
				m := byte(ms >> i)
				le.PutUint64(q[i:], spread(le.Uint64(rest[j:]), &table[m]))
				j += bits.OnesCount8(m)
			}
		}
		bitmap, p = bitmap[8:], p[64:]
	}
	for i, m := range bitmap {
		v := spread(le.Uint64(rest[j:]), &table[m])
		j += bits.OnesCount8(m)
		for k := range p[8*i : min(8*i+8, len(p))] {
			p[8*i+k] = byte(v >> (8 * k))
		}
	}
}

// move is how the lowest bytes of a word get to where a bitmap of 8 has bits set: those in up4 move up by 4
// bytes, then those in up2 by 2 and those in up1 by 1. Branching on each bit would be mispredicted, since the
// bits are random (Warren, Hacker's Delight, 7-4 and 7-5, with bytes for bits).
type move struct{ up4, up2, up1, set uint64 }

// spread moves the lowest bytes of v to where the bitmap of m has bits set.
func spread(v uint64, m *move) uint64 {
	v = v&^m.up4 | v<<32&m.up4
	v = v&^m.up2 | v<<16&m.up2
	v = v&^m.up1 | v<<8&m.up1
	return v & m.set
}

// gather undoes spread.
func gather(v uint64, m *move) uint64 {
	t := v & m.up1
	v = v ^ t | t>>8
	t = v & m.up2
	v = v ^ t | t>>16
	t = v & m.up4
	return v ^ t | t>>32
}

// moves has the move of each bitmap.
var moves = sync.OnceValue(func() *[256]move {
	var table [256]move
	for b := range table {
		m := &table[b]
		n := 0 // the byte that is to get to k
		for k := range 8 {
			if b>>k&1 == 0 {
				continue
			}
			at := n
			for _, step := range []struct {
				by   int
				mask *uint64
			}{{4, &m.up4}, {2, &m.up2}, {1, &m.up1}} {
				if (k-n)&step.by != 0 {
					at += step.by
					*step.mask |= 0xff << (8 * at)
				}
			}
			m.set |= 0xff << (8 * k)
			n++
		}
	}
	return &table
})
