package codec

import (
	"errors"
	"fmt"

	"ckptfs/cas/rans"
)

// The codes of a part.
const (
	partRaw    = 0
	partConst  = 1
	partRans   = 2
	partSparse = 3
	partAgain  = 4
	partPeriod = 5
	// partWhole is set in the code of a part that is a whole plane, not sorted by groups.
	partWhole = 0x80
)

var errEnds = errors.New("ends early")

// part says how some bytes of a slab are coded.
type part struct {
	code   byte
	p      []byte
	f      rans.Freqs
	table  [2]int // where f lies in tables as it is stored: from, to
	size   float64
	period byte
}

// putSlab appends the slab whose parts were chosen.
func (s *planeState) putSlab(dst []byte) []byte {
	head := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	if s.lanes > 0 {
		s.enc.Reset(s.coded, s.lanes)
		s.enc.Written = s.toWrite(dst)
		for i := len(s.parts) - 1; i >= 0; i-- {
			if p := &s.parts[i]; p.code&^partWhole == partRans {
				s.enc.Run(p.p, &p.f)
				s.enc.Written = nil
			}
		}
		stream := s.enc.End()
		le.PutUint32(dst[head:], uint32(s.lanes)|uint32(len(stream))<<8)
		dst = append(dst, stream...)
	}
	for i := range s.parts {
		p := &s.parts[i]
		dst = append(dst, p.code)
		switch p.code &^ partWhole {
		case partRaw:
			dst = append(dst, p.p...)
		case partConst:
			dst = append(dst, p.p[0])
		case partPeriod:
			dst = append(dst, p.period)
		case partRans:
			dst = append(dst, s.tables[p.table[0]:p.table[1]]...)
		}
	}
	return dst
}

// toWrite is about where the slab will lie that is appended to dst.
func (s *planeState) toWrite(dst []byte) []byte {
	n := s.coded / 4
	for i := range s.parts {
		if p := &s.parts[i]; p.code&^partWhole == partRaw {
			n += len(p.p)
		}
	}
	return dst[len(dst):min(len(dst)+n, cap(dst))]
}

// open begins a slab and returns what follows its stream.
func (s *planeState) open(stored []byte) ([]byte, error) {
	if len(stored) < 4 {
		return nil, errEnds
	}
	v := le.Uint32(stored)
	stored = stored[4:]
	lanes, n := int(v&0xff), int(v>>8)
	if n > len(stored) {
		return nil, errEnds
	}
	s.ones = nil
	s.behind = stored[n:]
	if v == 0 {
		s.dec.Reset()
		return stored, nil
	}
	return stored[n:], s.dec.Init(stored[:n:n], lanes)
}

// bySort reports whether the plane that stored begins with is sorted by g.
func bySort(stored []byte, g *groups) bool {
	return g != nil && (len(stored) == 0 || stored[0]&partWhole == 0)
}

// decodeGroups sets sorted to the bytes of the groups that stored begins with, without gaps, and returns what
// follows them.
func (s *planeState) decodeGroups(sorted, stored []byte, g *groups) ([]byte, error) {
	at := 0
	for _, n := range g.counts[:g.n] {
		p, rest, err := s.decode(sorted[at:at+n:at+n], stored, true)
		if err != nil {
			return nil, err
		}
		copy(sorted[at:], p) // unless it is there already
		stored = rest
		at += n
	}
	return stored, nil
}

// decodePlane returns the plane of len(buf) bytes that stored begins with, and what follows it. The plane is
// buf, which it fills, or lies in stored.
func (s *planeState) decodePlane(buf, stored []byte, g *groups) (p, rest []byte, err error) {
	switch {
	case g != nil:
		return s.decodeAs(stored[0]&^partWhole, buf, stored[1:], true)
	case len(stored) > 0 && stored[0] == partAgain && s.ones != nil:
		stored, err = s.decodeRest(buf, stored[1:], s.ones)
		return buf, stored, err
	}
	return s.decode(buf, stored, true)
}

// decode is decodePlane for a part.
func (s *planeState) decode(buf, stored []byte, sparse bool) (p, rest []byte, err error) {
	if len(buf) == 0 {
		return buf, stored, nil
	}
	if len(stored) == 0 {
		return nil, nil, errEnds
	}
	return s.decodeAs(stored[0], buf, stored[1:], sparse)
}

// decodeAs is decode for a part of that code, which may be sparse or not.
func (s *planeState) decodeAs(code byte, buf, stored []byte, sparse bool) (p, rest []byte, err error) {
	n := len(buf)
	switch {
	case code == partRaw:
		if len(stored) < n {
			return nil, nil, errEnds
		}
		return stored[:n:n], stored[n:], nil
	case code == partConst:
		if len(stored) == 0 {
			return nil, nil, errEnds
		}
		fill(buf, stored[0])
		return buf, stored[1:], nil
	case code == partRans:
		if !s.dec.Any() {
			return nil, nil, errNoStream
		}
		var f rans.Freqs
		if stored, err = f.Read(stored); err != nil {
			return nil, nil, err
		}
		s.dec.Read, s.behind = s.behind[:len(s.behind)-len(stored)], stored
		err := s.dec.Run(buf, &f)
		s.dec.Read, s.dec.Written = nil, nil
		return buf, stored, err
	case code == partSparse && sparse:
		stored, err = s.decodeSparse(buf, stored)
		return buf, stored, err
	}
	return nil, nil, fmt.Errorf("code %d", code)
}

var (
	errNoStream = errors.New("no stream")
	errPeriod   = errors.New("sparse: a period of nothing")
	errBitmap   = errors.New("sparse: bits past the end")
)

// decodeSparse fills buf with the sparse part that stored begins with, and returns what follows it.
func (s *planeState) decodeSparse(buf, stored []byte) ([]byte, error) {
	period := 0
	if len(stored) > 1 && stored[0] == partPeriod {
		if period = int(stored[1]); period == 0 {
			return nil, errPeriod
		}
		stored = stored[2:]
	}
	own := s.bitmap[:(len(buf)+7)/8]
	bitmap, stored, err := s.decode(own, stored, false)
	if err != nil {
		return nil, err
	}
	if period > 0 {
		copy(own, bitmap) // unless it is there already
		bitmap = own
		unlag(bitmap, period, s.rest[:len(bitmap)])
	}
	if len(buf)%8 != 0 && bitmap[len(bitmap)-1]>>(len(buf)%8) != 0 {
		return nil, errBitmap
	}
	s.ones = bitmap
	return s.decodeRest(buf, stored, bitmap)
}

// decodeRest fills buf with the bytes of the part that stored begins with, where bitmap has bits set, and
// with zeros elsewhere.
func (s *planeState) decodeRest(buf, stored, bitmap []byte) ([]byte, error) {
	rest, stored, err := s.decode(s.rest[:ones(bitmap)], stored, false)
	if err != nil {
		return nil, err
	}
	copy(s.rest[:], rest) // unless it is there already
	scatter(buf, bitmap, &s.rest)
	return stored, nil
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
