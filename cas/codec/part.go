package codec

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
)

// The codes of a part.
const (
	partRaw    = 0
	partConst  = 1
	partRans   = 2
	partSparse = 3
	// partWhole is set in the code of a part that is a plane as it is, and not sorted by groups.
	partWhole = 0x80
)

const (
	// minCoded is the length below which frequencies outweigh what they save.
	minCoded = 32
	// randomBits is the entropy, in bits a byte, from which a part stays raw: 1.5 % is 0.12 of 8 bits.
	randomBits = 7.9
	// minGain: coding must save 1/minGain of a part, 1.5 %, to be worth a reader's time.
	minGain = 66
	// manyBytes is how long a stream must be for more states to make it longer by 1.2 % at most.
	manyBytes = 16 << 10
)

var errEnds = errors.New("ends early")

// part says how bytes of a slab are to be coded.
type part struct {
	code  byte
	p     []byte
	f     freqs
	table [2]int // from and to where f lies, stored, in tables
	size  float64
}

// choose sets parts to what codes the planes, which s.bufs holds, in the fewest bytes or nearly so.
func (s *planeState) choose(w int, g *groups) {
	for _, s.flat = range []bool{false, true} {
		s.parts, s.tables, s.used = s.parts[:0], s.tables[:0], 0
		for k := range w {
			s.choosePlane(k, g)
		}
		s.coded, s.lanes = 0, fewLanes
		var saved, size float64
		for i := range s.parts {
			if p := &s.parts[i]; p.code&^partWhole == partRans {
				s.coded += len(p.p)
				size += p.size
				saved += float64(len(p.p)) - p.size
			}
		}
		if s.coded == 0 {
			s.lanes = 0
			return
		}
		if size > manyBytes {
			s.lanes = manyLanes
		}
		if saved > 4*fewLanes+minCoded {
			return
		} // else a stream does not pay
	}
}

// choosePlane adds the parts of plane k: as it is, or sorted by groups where that takes less.
func (s *planeState) choosePlane(k int, g *groups) {
	p, first := s.bufs[k], len(s.parts)
	size := s.add(p, nil, true)
	if g == nil {
		return
	}
	s.parts[first].code |= partWhole
	if c := s.parts[first].code; c == partWhole|partRaw || c == partWhole|partConst {
		return
	}
	second := len(s.parts)
	sorted := s.sorted[k*len(p):][:len(p)]
	g.sort(sorted, p)
	var sum float64
	for _, n := range g.counts[:g.n] {
		sum += s.add(sorted[:n:n], nil, true)
		sorted = sorted[n:]
	}
	if sum < size-size/256 {
		s.parts = append(s.parts[:first], s.parts[second:]...)
	} else {
		s.parts = s.parts[:second]
	}
}

// add adds the parts that code p, of which c, if not nil, are the counts, and returns how many bytes they take.
func (s *planeState) add(p []byte, c *counts, sparse bool) float64 {
	if len(p) == 0 {
		return 0
	}
	s.parts = append(s.parts, part{code: partRaw, p: p})
	at := len(s.parts) - 1
	raw := float64(1 + len(p))
	if bytes.Equal(p[1:], p[:len(p)-1]) {
		s.parts[at].code = partConst
		return 2
	}
	if len(p) < minCoded || s.flat || c == nil && sampleBits(p) > randomBits {
		return raw
	}
	if c == nil {
		c = new(counts)
		c.count(p)
	}
	most := raw - raw/minGain
	if zeros := int(c[0]); sparse && 5*zeros > 2*len(p) {
		if size := s.addSparse(p, c); 4*zeros > 3*len(p) && size <= most {
			return size
		} else if one := s.coding(at, c); one < size || size > most {
			s.parts = s.parts[:at+1]
			if one <= most {
				s.parts[at].code = partRans
				return one
			}
			s.parts[at].code = partRaw
			return raw
		} else {
			return size
		}
	}
	if size := s.coding(at, c); size <= most {
		s.parts[at].code = partRans
		return size
	}
	return raw
}

// coding sets the frequencies of the part at, of counts c, and returns what it takes.
func (s *planeState) coding(at int, c *counts) float64 {
	p := &s.parts[at]
	p.f.normalize(c, len(p.p))
	p.table[0] = len(s.tables)
	s.tables = appendFreqs(s.tables, &p.f)
	p.table[1] = len(s.tables)
	p.size = float64(1+p.table[1]-p.table[0]) + p.f.cost(c)/8
	return p.size
}

// addSparse makes the part that was added last sparse, and adds its own.
func (s *planeState) addSparse(p []byte, c *counts) float64 {
	s.parts[len(s.parts)-1].code = partSparse
	bitmap := s.spare[s.used:][:(len(p)+7)/8]
	s.used += len(bitmap)
	rest := pack(s.spare[s.used:], bitmap, p)
	s.used += len(rest)
	size := 1 + s.add(bitmap, nil, false)
	others := *c
	others[0] = 0
	return size + s.add(rest, &others, false)
}

// putSlab appends the slab of which the parts were chosen.
func (s *planeState) putSlab(dst []byte) []byte {
	head := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	if s.lanes > 0 {
		s.enc.reset(s.coded, s.lanes)
		for i := len(s.parts) - 1; i >= 0; i-- {
			if p := &s.parts[i]; p.code&^partWhole == partRans {
				s.enc.run(p.p, &p.f)
			}
		}
		stream := s.enc.end()
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
		case partRans:
			dst = append(dst, s.tables[p.table[0]:p.table[1]]...)
		}
	}
	return dst
}

// open begins a slab and returns what comes behind its stream.
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
	if lanes != fewLanes && lanes != manyLanes && v != 0 {
		return nil, fmt.Errorf("a stream of %d bytes, %d states", n, lanes)
	}
	return stored[n:], s.dec.init(stored[:n:n], lanes)
}

// decodePlane returns the plane of len(buf) bytes that stored begins with, and what is behind it: buf, filled, or bytes of
// stored.
func (s *planeState) decodePlane(buf, stored []byte, g *groups) (p, rest []byte, err error) {
	if g == nil {
		return s.decode(buf, stored, true)
	}
	if len(stored) == 0 {
		return nil, nil, errEnds
	}
	if code := stored[0]; code&partWhole != 0 {
		return s.decodeAs(code&^partWhole, buf, stored[1:], true)
	}
	sorted := s.sorted[:len(buf)]
	at := 0
	for _, n := range g.counts[:g.n] {
		if p, stored, err = s.decode(sorted[at:at+n:at+n], stored, true); err != nil {
			return nil, nil, err
		}
		copy(sorted[at:], p) // where it is not there already
		at += n
	}
	g.unsort(buf, sorted)
	return buf, stored, nil
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
		if len(s.dec.x) == 0 {
			return nil, nil, errNoStream
		}
		var f freqs
		if stored, err = readFreqs(&f, stored); err != nil {
			return nil, nil, err
		}
		return buf, stored, s.dec.run(buf, &f)
	case code == partSparse && sparse:
		stored, err = s.decodeSparse(buf, stored)
		return buf, stored, err
	}
	return nil, nil, fmt.Errorf("code %d", code)
}

var (
	errNoStream = errors.New("no stream")
	errBitmap   = errors.New("sparse: bits past the end")
)

// decodeSparse fills buf with the sparse part that stored begins with, and returns what is behind it.
func (s *planeState) decodeSparse(buf, stored []byte) ([]byte, error) {
	bitmap, stored, err := s.decode(s.bitmap[:(len(buf)+7)/8], stored, false)
	if err != nil {
		return nil, err
	}
	if len(buf)%8 != 0 && bitmap[len(bitmap)-1]>>(len(buf)%8) != 0 {
		return nil, errBitmap
	}
	n := 0
	b := bitmap
	for ; len(b) >= 8; b = b[8:] {
		n += bits.OnesCount64(le.Uint64(b))
	}
	for _, m := range b {
		n += bits.OnesCount8(m)
	}
	rest, stored, err := s.decode(s.rest[:n], stored, false)
	if err != nil {
		return nil, err
	}
	copy(s.rest[:], rest) // where it is not there already
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
