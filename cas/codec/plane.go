package codec

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/klauspost/compress/huff0"
)

// The codes of a plane.
const (
	planeRaw    = 0
	planeConst  = 1
	planeHuff   = 2
	planeSparse = 3
)

const (
	// minHuff is the length below which a table outweighs what it saves.
	minHuff = 64
	// huffBits is the entropy, in bits a byte, from which a plane stays raw: 1.5 % is 0.12 of 8 bits.
	huffBits = 7.9
	// minGain: Huffman coding must save 1/minGain of the plane, 1.5 %, to be worth a reader's time.
	minGain = 66
)

var errEnds = errors.New("ends early")

func putPlaneHead(p []byte, code, n int) { le.PutUint32(p, uint32(code)|uint32(n)<<8) }

// cutPlane reads a code and length from head and cuts as many bytes off stored.
func cutPlane(head, stored []byte) (code int, p, rest []byte, err error) {
	v := le.Uint32(head)
	n := int(v >> 8)
	if n > len(stored) {
		return 0, nil, nil, errEnds
	}
	return int(v & 0xff), stored[:n:n], stored[n:], nil
}

// choose says how to code p, which encodePlane may find not to pay.
func (s *planeState) choose(p []byte) int {
	switch {
	case bytes.Equal(p[1:], p[:len(p)-1]):
		return planeConst
	case len(p) < minHuff:
		return planeRaw
	case 5*bytes.Count(p, []byte{0}) > 2*len(p):
		return planeSparse
	}
	return s.chooseDense(p)
}

// chooseDense is choose for what is part of a sparse plane.
func (s *planeState) chooseDense(p []byte) int {
	switch {
	case bytes.Equal(p[1:], p[:len(p)-1]):
		return planeConst
	case len(p) < minHuff || sampleBits(p) > huffBits:
		return planeRaw
	}
	return planeHuff
}

// encodePlane codes p, which is valid until the next call; nil when that would not pay.
func (s *planeState) encodePlane(code int, p []byte) []byte {
	switch code {
	case planeConst:
		return p[:1]
	case planeHuff:
		q, _, err := huff0.Compress4X(p, &s.enc)
		if err == nil && len(q) <= len(p)-len(p)/minGain {
			return q
		}
	case planeSparse:
		if q := s.encodeSparse(p); q != nil {
			return q
		}
		if s.chooseDense(p) == planeHuff {
			return s.encodePlane(planeHuff, p)
		}
	}
	return nil
}

// decodePlane returns the plane of len(buf) bytes that q holds: q itself, or buf, filled.
func (s *planeState) decodePlane(buf []byte, code int, q []byte) ([]byte, error) {
	n := len(buf)
	switch code {
	case planeRaw:
		if len(q) != n {
			return nil, fmt.Errorf("raw: %d bytes, want %d", len(q), n)
		}
		return q, nil
	case planeConst:
		if len(q) != 1 {
			return nil, fmt.Errorf("const: %d bytes", len(q))
		}
		fill(buf, q[0])
		return buf, nil
	case planeHuff:
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

// fill sets p to v.
func fill(p []byte, v byte) {
	if len(p) == 0 {
		return
	}
	p[0] = v
	for n := 1; n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
}
