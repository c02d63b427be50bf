package codec

import (
	"errors"
	"math"
	"math/bits"
	"sync"
)

// encodeSparse codes p, or returns nil when that does not pay. The result is valid until the next call.
func (s *planeState) encodeSparse(p []byte) []byte {
	bitmap, rest := s.bitmap[:(len(p)+7)/8], s.rest[:]
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
		if v == 0 {
			bitmap[i] = 0
			continue
		}
		m := nonZero(v)
		bitmap[i] = m
		le.PutUint64(rest[j:], gather(v, &table[m]))
		j += bits.OnesCount8(m)
	}
	rest = rest[:j]

	out := append(s.plane[:0], 0, 0, 0, 0, 0, 0, 0, 0)
	for k, part := range [2][]byte{bitmap, rest} {
		code := s.chooseDense(part)
		q := s.encodePlane(code, part)
		if q == nil {
			code, q = planeRaw, part
		}
		putPlaneHead(out[4*k:], code, len(q))
		out = append(out, q...)
	}
	if len(out) > len(p)-len(p)/minGain {
		return nil
	}
	return out
}

// nonZero has bit i set when byte i of v is not zero.
func nonZero(v uint64) byte {
	const low7 = 0x7f7f7f7f7f7f7f7f
	v = (v&low7 + low7 | v) &^ low7
	return byte(v >> 7 * 0x0102040810204080 >> 56)
}

var errBitmap = errors.New("sparse: the bitmap does not match")

// decodeSparse fills p with the sparse plane that q holds.
func (s *planeState) decodeSparse(p, q []byte) error {
	if len(q) < 8 {
		return errEnds
	}
	head, q := q[:8], q[8:]
	code, part, q, err := cutPlane(head, q)
	if err != nil {
		return err
	}
	bitmap, err := s.decodePlane(s.bitmap[:(len(p)+7)/8], code, part)
	if err != nil {
		return err
	}
	var n int
	b := bitmap
	for ; len(b) >= 8; b = b[8:] {
		n += bits.OnesCount64(le.Uint64(b))
	}
	for _, m := range b {
		n += bits.OnesCount8(m)
	}
	if n == 0 || len(p)%8 != 0 && bitmap[len(bitmap)-1]>>(len(p)%8) != 0 {
		return errBitmap
	}
	code, part, q, err = cutPlane(head[4:], q)
	if err != nil {
		return err
	}
	rest, err := s.decodePlane(s.rest[:n], code, part)
	if err != nil {
		return err
	}
	if len(q) != 0 {
		return errBitmap
	}
	if code == planeRaw {
		copy(s.rest[:], rest)
	}
	scatter(p, bitmap, &s.rest)
	return nil
}

// scatter puts the bytes of rest where bitmap has bits set, and zeros elsewhere. The last 8 bytes of rest may be read but
// count for nothing.
func scatter(p, bitmap []byte, rest *[maxPlane + 8]byte) {
	table := moves()
	j := 0
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

// move is how the lowest bytes of a word get to where a bitmap of 8 has bits set: those in up4 by moving there up by 4
// bytes, then those in up2 by 2 and those in up1 by 1. Which bits are set is not to be foretold, so that asking each would
// cost mispredictions (Warren, Hacker's Delight, 7-4 and 7-5, with bytes for bits).
type move struct{ up4, up2, up1, set uint64 }

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
