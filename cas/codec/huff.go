package codec

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"github.com/klauspost/compress/huff0"
)

// huffCodec is what planesCodec was at first, with Huffman codes. It is only read any more.
//
// Stored is what planesCodec has, but for the slabs.
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
// A Huffman block holds 262143 bytes at most and states the lengths of its streams in 16 bits: planes are shorter. Each plane
// of each slab has a table of its own.
type huffCodec struct{}

func (huffCodec) ID() byte { return huffPlanes }

// The codes of a plane.
const (
	huffRaw    = 0
	huffConst  = 1
	huffHuff   = 2
	huffSparse = 3
)

// huffState is what decoding needs besides dst.
type huffState struct {
	dec    huff0.Scratch
	bufs   [8][]byte // planes of the slab at hand
	plane  [slabBytes]byte
	bitmap [maxPlane / 8]byte
	rest   [maxPlane + 8]byte // of a sparse plane
}

var huffStates = sync.Pool{New: func() any { return new(huffState) }}

func (huffCodec) Decode(dst, stored []byte, rawLen int) ([]byte, error) {
	s := huffStates.Get().(*huffState)
	defer huffStates.Put(s)
	return decodeTo(dst, rawLen, "planes", func(dst []byte) error {
		w, rot, stored, err := planesShape(stored)
		if err != nil {
			return err
		}
		tail, err := slabs(len(dst), stored, w, func(at, n int, stored []byte) ([]byte, error) {
			return s.decodeSlab(dst[at:at+n:at+n], stored, w, rot)
		})
		if err != nil {
			return err
		}
		return output{p: dst}.tail(tail)
	})
}

// decodeSlab fills dst and returns what of stored comes behind the slab.
func (s *huffState) decodeSlab(dst, stored []byte, w, rot int) ([]byte, error) {
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
		if code == huffSparse {
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

// cutPlane reads a code and length from head and cuts as many bytes off stored.
func cutPlane(head, stored []byte) (code int, p, rest []byte, err error) {
	v := le.Uint32(head)
	n := int(v >> 8)
	if n > len(stored) {
		return 0, nil, nil, errEnds
	}
	return int(v & 0xff), stored[:n:n], stored[n:], nil
}

// decodePlane returns the plane of len(buf) bytes that q holds: q itself, or buf, filled.
func (s *huffState) decodePlane(buf []byte, code int, q []byte) ([]byte, error) {
	n := len(buf)
	switch code {
	case huffRaw:
		if len(q) != n {
			return nil, fmt.Errorf("raw: %d bytes, want %d", len(q), n)
		}
		return q, nil
	case huffConst:
		if len(q) != 1 {
			return nil, fmt.Errorf("const: %d bytes", len(q))
		}
		fill(buf, q[0])
		return buf, nil
	case huffHuff:
		if len(q) >= n {
			return nil, fmt.Errorf("huff: %d bytes for %d", len(q), n)
		}
		_, streams, err := huff0.ReadTable(q, &s.dec)
		if err != nil {
			return nil, err
		}
		// Decoding is to the capacity exactly; the third index keeps it there.
		out, err := s.dec.Decoder().Decompress4X(buf[:0:n], streams)
		if err != nil {
			return nil, err
		}
		if len(out) != n {
			return nil, errEnds
		}
		return buf, nil
	}
	return nil, fmt.Errorf("code %d", code)
}

var errHuffBitmap = errors.New("sparse: the bitmap does not match")

// decodeSparse fills p with the sparse plane that q holds.
func (s *huffState) decodeSparse(p, q []byte) error {
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
		return errHuffBitmap
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
		return errHuffBitmap
	}
	if code == huffRaw {
		copy(s.rest[:], rest)
	}
	scatter(p, bitmap, &s.rest)
	return nil
}
