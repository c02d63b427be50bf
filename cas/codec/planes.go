package codec

import (
	"fmt"
	"math/bits"
	"sync"

	"github.com/klauspost/compress/huff0"

	"ckptfs/cas"
)

// planesCodec takes numbers apart into planes: all their least significant bytes, then all the next ones, and so on. Of a
// weight the bits of the mantissa are as good as random and those of the exponent are not; apart, the former are stored as
// they are and only the latter are coded. Rotating each number left by one bit first puts the sign, which is random too, at
// the bottom, and the exponent of a float32 or bfloat16 into a byte of its own.
//
// Stored is, all numbers little-endian:
//
//	0  1  shape: bits 0-3 the width w of an element in bytes, 1, 2, 4 or 8; bit 4 set when the elements are rotated left
//	      by one bit, never with w = 1; bits 5-7 zero
//	1     slabs, each of 262144/w elements (131072 when w = 1), the last of fewer but of one at least
//	   t  the rawLen mod w bytes that make no whole element, as they are
//
// A slab of n elements is
//
//	 0 4w  for each plane, least significant first: 1 byte code, 3 bytes length of what is stored of it
//	4w     the planes, in the same order, without gaps
//
// A plane is n bytes, coded as one of
//
//	0  raw     the n bytes
//	1  const   1 byte, n times
//	2  huff    a Huffman table and four streams: as the literals section of Zstandard, RFC 8878 section 4.2 and 3.1.1.3.1.6,
//	           has them, table description and jump table included; of fewer than n bytes
//	3  sparse  the bytes that are not zero, and where they are:
//	            0  4  code and length of the bitmap: code 0, 1 or 2, as above
//	            4  4  code and length of the others
//	            8     the bitmap, ceil(n/8) bytes: bit i%8 of byte i/8 is set when byte i of the plane is not zero; the bits
//	                  past n are zero
//	                  the bytes that are not zero, in order; as many as the bitmap has bits set, which is one at least
//
// Slabs bound the memory that either side needs, and keep planes at 131072 bytes or less: a Huffman block holds 262143 at
// most and states the lengths of its streams in 16 bits. Each plane of each slab has a table of its own. Nothing follows.
type planesCodec struct{}

func (planesCodec) ID() byte { return Planes }

const (
	rotated   = 0x10
	slabBytes = 256 << 10
	maxPlane  = slabBytes / 2
)

// slabElems is how many elements of w bytes a slab holds.
func slabElems(w int) int { return slabBytes / max(w, 2) }

// planeState is what either direction needs besides dst: some 400 KiB and huff0's own, whatever is stored.
type planeState struct {
	enc    huff0.Scratch
	dec    huff0.Scratch // apart: reading a table drops buffers that writing one needs
	bufs   [8][]byte     // planes of the slab at hand
	plane  [slabBytes]byte
	bitmap [maxPlane/8 + 8]byte
	rest   [maxPlane + 8]byte // of a sparse plane
}

var planeStates = sync.Pool{New: func() any { return &planeState{enc: huff0.Scratch{Reuse: huff0.ReusePolicyNone}} }}

// Encode splits each slab to where its planes would lie were they all raw, and codes them from there in place.
func (planesCodec) Encode(dst, raw []byte, h Hint) []byte {
	s := planeStates.Get().(*planeState)
	defer planeStates.Put(s)
	// Integers are not rotated: it would spoil the planes of zeros above small ones. Floats of one byte gain nothing by it.
	w, kind := numbers(h)
	rot := 0
	if kind == floats && w > 1 {
		rot = 1
	}
	slabs := (len(raw)/w + slabElems(w) - 1) / slabElems(w)
	if need := len(dst) + 1 + slabs*4*w + len(raw); cap(dst) < need {
		d := make([]byte, len(dst), need)
		copy(d, dst)
		dst = d
	}
	dst = append(dst, byte(w|rot*rotated))
	for len(raw) >= w {
		n := min(len(raw)/w, slabElems(w))
		dst = s.encodeSlab(dst, raw[:n*w], w, rot)
		raw = raw[n*w:]
	}
	return append(dst, raw...)
}

// encodeSlab appends the slab that raw makes to dst, which has room for it.
func (s *planeState) encodeSlab(dst, raw []byte, w, rot int) []byte {
	n := len(raw) / w
	head := len(dst)
	body := head + 4*w
	dst = dst[:body+len(raw)]
	for k := range w {
		s.bufs[k] = dst[body+k*n:][:n:n]
	}
	split(&s.bufs, raw, w, rot)
	at := body
	for k := range w {
		p := s.bufs[k]
		code := s.choose(p)
		q := s.encodePlane(code, p)
		if q == nil {
			code, q = planeRaw, p
		}
		putPlaneHead(dst[head+4*k:], code, len(q))
		at += copy(dst[at:], q) // at most to where p ends: nothing grows
	}
	return dst[:at]
}

func (planesCodec) Decode(dst, stored []byte, rawLen int) ([]byte, error) {
	d, err := grow(dst, rawLen)
	if err != nil {
		return dst, fmt.Errorf("planes: %w", err)
	}
	s := planeStates.Get().(*planeState)
	defer planeStates.Put(s)
	if err := s.decode(d[len(d):len(d)+rawLen:len(d)+rawLen], stored); err != nil {
		return dst, fmt.Errorf("planes: %w: %w", err, cas.ErrCorrupt)
	}
	return d[:len(d)+rawLen], nil
}

// decode fills dst.
func (s *planeState) decode(dst, stored []byte) error {
	if len(stored) == 0 {
		return errEnds
	}
	w, rot := int(stored[0]&15), int(stored[0]/rotated)
	if bits.OnesCount(uint(w)) != 1 || rot > 1 || rot == 1 && w == 1 {
		return fmt.Errorf("shape %#02x", stored[0])
	}
	stored = stored[1:]
	for len(dst) >= w {
		n := min(len(dst)/w, slabElems(w))
		var err error
		if stored, err = s.decodeSlab(dst[:n*w:n*w], stored, w, rot); err != nil {
			return err
		}
		dst = dst[n*w:]
	}
	if len(stored) != len(dst) {
		return fmt.Errorf("%d bytes at the end, want %d", len(stored), len(dst))
	}
	copy(dst, stored)
	return nil
}

// decodeSlab fills dst and returns what of stored comes behind the slab.
func (s *planeState) decodeSlab(dst, stored []byte, w, rot int) ([]byte, error) {
	n := len(dst) / w
	if len(stored) < 4*w {
		return nil, errEnds
	}
	heads, stored := stored[:4*w], stored[4*w:]
	for k := range w {
		code, q, rest, err := cutPlane(heads[4*k:], stored)
		if err != nil {
			return nil, err
		}
		stored = rest
		buf := s.plane[k*n:][:n]
		if w == 1 {
			buf = dst
		}
		if code == planeSparse {
			s.bufs[k], err = buf, s.decodeSparse(buf, q)
		} else {
			s.bufs[k], err = s.decodePlane(buf, code, q)
		}
		if err != nil {
			return nil, fmt.Errorf("plane %d: %w", k, err)
		}
	}
	merge(dst, &s.bufs, w, rot)
	return stored, nil
}
