package codec

import (
	"fmt"
	"math/bits"
	"slices"

	"ckptfs/cas/rans"
)

// planesCodec takes numbers apart into planes: all their least significant bytes, then all the next ones, and
// so on. Of a weight the bits of the mantissa are as good as random and those of the exponent are not. Apart,
// the former are stored as they are and only the latter are coded. Rotating each number left by one bit first
// puts the sign, which is random too, at the bottom, and the exponent of a float32 or bfloat16 into a byte of
// its own.
//
// Stored is, all numbers little-endian:
//
//	0  1  shape: bits 0-3 the width w of an element in bytes, 1, 2, 4 or 8; bit 4 set when the elements are
//	      rotated left by one bit, never with w = 1; bits 5-7 zero
//	1     slabs, each of 262144/w elements (131072 when w = 1), the last of fewer but of one at least
//	   t  the rawLen mod w bytes that make no whole element, as they are
//
// Nothing follows. Slabs bound the memory that either side needs, and fit the processor's nearer caches. A
// slab of n elements is
//
//	0  1  s: how many states the stream has: 4, 16, 32 or 64, or 0 where there is none
//	1  3  l: the stream's length, 0 where there is none
//	4  l  a stream (package rans); its runs belong to the parts below, in their order
//	      for each plane, least significant first, its n bytes as a part
//
// A part of n bytes, n > 0, is
//
//	0  1  code:
//	1     0  raw     the n bytes
//	      1  const   1 byte, n times
//	      2  rans    frequencies (package rans) of the next run of the stream, of n bytes
//	      3  sparse  a bitmap of ceil(n/8) bytes as a part, and, where it has any bits set, the bytes that it
//	                 is about as a part: byte i of the plane is the next of them when bit i%8 of byte i/8 is
//	                 set, else zero. Bits past n are not set. Neither part is sparse
//	      4  again   only as a whole plane of a slab that is not sorted (see Delta), and after one that is
//	                 sparse: as a part the bytes that the bitmap of the last such one is about. It is not
//	                 sparse
//	      5  period  only as the bitmap of a sparse part: 1 byte p, not 0, and, as a part that is neither
//	                 sparse nor periodic, the bitmap with each byte but the first p XORed with the byte p
//	                 before
//
// Sparse saves the time to code zeros, which are often many and in rows.
type planesCodec struct{}

func (planesCodec) ID() byte { return Planes }

const (
	rotated   = 0x10
	slabBytes = 256 << 10
	maxPlane  = slabBytes / 2
)

// slabElems is how many elements of w bytes a slab holds.
func slabElems(w int) int { return slabBytes / max(w, 2) }

// planeState is what either direction needs besides dst: some 2 MiB, whatever is stored.
type planeState struct {
	dec    rans.Decoder
	bufs   [8][]byte // planes of the slab at hand
	plane  [slabBytes]byte
	sorted [slabBytes + 8*maxGroups*gap]byte // by group
	group  [maxPlane]byte                    // of each element
	groups groups
	from   [8][]byte // planes that are sorted, or come to be, together
	to     [8][]byte
	diffs  [slabBytes]byte
	bitmap [maxPlane / 8]byte
	behind []byte             // of the slab at hand: what follows its stream, or the last run's frequencies
	ones   []byte             // the bitmap of the sparse part before
	rest   [maxPlane + 8]byte // of a sparse part

	enc     rans.Encoder
	plans   [8]plan   // of planes
	sources [8]source // of groups and of all, or of planes
	parts   []part
	tables  []byte
	coded   int                     // bytes of parts that the stream has
	lanes   int                     // its states; 0 where there is none
	flat    bool                    // there is to be none
	block   [4096]byte              // of what is verified
	spare   [5 * slabBytes / 2]byte // for bitmaps and what they leave
	used    int                     // of spare

	// blockBufs are the planes of block. An interface takes them, so they would be allocated each time.
	blockBufs [8][]byte
}

// encodePlanes appends raw to dst as planes.
func encodePlanes(dst, raw []byte, h Hint) []byte {
	s := planeStates.get()
	defer planeStates.put(s)
	// Integers are not rotated: it would spoil the planes of zeros above small ones. Floats of one byte gain
	// nothing by it.
	w, kind := numbers(h)
	rot := 0
	if kind == floats && w > 1 {
		rot = 1
	}
	dst = append(slices.Grow(dst, len(raw)+len(raw)/64), byte(w|rot*rotated))
	for len(raw) >= w {
		n := min(len(raw)/w, slabElems(w))
		split(s.planes(n, w), raw[:n*w], w, rot)
		dst = s.encodeSlab(dst, w, nil)
		raw = raw[n*w:]
	}
	return append(dst, raw...)
}

func (planesCodec) Decode(dst, stored []byte, rawLen int) ([]byte, error) {
	s := planeStates.get()
	defer planeStates.put(s)
	return decodeTo(dst, rawLen, "planes", func(dst []byte) error {
		return s.decodePlanes(output{p: dst}, stored)
	})
}

// verifyPlanes reports whether stored decodes to raw.
func verifyPlanes(stored, raw []byte) bool {
	s := planeStates.get()
	defer planeStates.put(s)
	return s.decodePlanes(output{p: raw, verify: true}, stored) == nil
}

func (s *planeState) decodePlanes(o output, stored []byte) error {
	w, rot, stored, err := planesShape(stored)
	if err != nil {
		return err
	}
	tail, err := slabs(len(o.p), stored, w, func(at, n int, stored []byte) ([]byte, error) {
		s.dec.Written = o.next(at, n)
		stored, err := s.decodeSlab(stored, n/w, w, nil)
		if err != nil {
			return nil, err
		}
		return stored, s.put(o, at, n, w, merger{w, rot})
	})
	if err != nil {
		return err
	}
	return o.tail(tail)
}

// merger is the joiner of elements of w bytes that split took apart.
type merger struct{ w, rot int }

func (m merger) join(dst []byte, p *[8][]byte, _ int) { merge(dst, p, m.w, m.rot) }
func (m merger) same(want []byte, p *[8][]byte, _ int) (int, bool) {
	return same(want, p, m.w, m.rot)
}

// planesShape reads the shape that stored begins with.
func planesShape(stored []byte) (w, rot int, rest []byte, err error) {
	if len(stored) == 0 {
		return 0, 0, nil, errEnds
	}
	w, rot = int(stored[0]&15), int(stored[0]/rotated)
	if bits.OnesCount(uint(w)) != 1 || rot > 1 || rot == 1 && w == 1 {
		return 0, 0, nil, fmt.Errorf("shape %#02x", stored[0])
	}
	return w, rot, stored[1:], nil
}

// planes sets s.bufs to room for w planes of n bytes, and returns it.
func (s *planeState) planes(n, w int) *[8][]byte {
	for k := range w {
		s.bufs[k] = s.plane[k*n:][:n:n]
	}
	return &s.bufs
}

// encodeSlab appends the slab whose planes are in s.bufs. Its elements are sorted by g; nil: they are not.
func (s *planeState) encodeSlab(dst []byte, w int, g *groups) []byte {
	s.choose(w, g)
	return s.putSlab(dst)
}

// decodeSlab sets s.bufs to the planes of the slab of n elements that stored begins with, and returns what
// follows it. They are valid until the next call.
func (s *planeState) decodeSlab(stored []byte, n, w int, g *groups) ([]byte, error) {
	stored, err := s.open(stored)
	if err != nil {
		return nil, err
	}
	sorted := 0
	for k, buf := range s.planes(n, w)[:w] {
		if bySort(stored, g) {
			s.from[sorted], s.to[sorted] = s.sortedPlane(k, n), buf
			stored, err = s.decodeGroups(s.from[sorted], stored, g)
			sorted++
		} else {
			s.bufs[k], stored, err = s.decodePlane(buf, stored, g)
		}
		if err != nil {
			return nil, fmt.Errorf("plane %d: %w", k, err)
		}
	}
	if sorted > 0 {
		g.unsort(s.to[:sorted], s.from[:sorted])
	}
	return stored, s.dec.End()
}
