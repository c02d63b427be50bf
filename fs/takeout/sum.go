package takeout

import (
	"bytes"
	"context"
	"encoding/binary"

	"ckptfs/cas"
)

// summed is the block that sums are made of.
const summed = 64 << 10

// summer hashes what a file holds, whichever of its zeros are holes:
//
//	state 0      32 zeros
//	state n+1    BLAKE3(state n, where the block begins, BLAKE3(the block)), for each block of 64 KiB that
//	             is not all zeros, in order; the last one ends with zeros
//	the sum      BLAKE3(the last state, the file's size)
//
// Numbers are little-endian, of 64 bits.
type summer struct {
	state cas.Hash
	block []byte
	at    int64 // where the block begins
	some  bool  // the block has bytes
}

func newSummer() *summer { return &summer{block: make([]byte, summed)} }

// add adds bytes, which lie behind all that were added.
func (s *summer) add(p []byte, off int64) {
	for len(p) > 0 {
		at := off &^ (summed - 1)
		if at != s.at {
			s.flush()
			s.at = at
		}
		n := min(len(p), summed-int(off-at))
		if n == summed {
			s.link(p[:n])
		} else {
			copy(s.block[off-at:], p[:n])
			s.some = true
		}
		p, off = p[n:], off+int64(n)
	}
}

func (s *summer) flush() {
	if s.some {
		s.link(s.block)
		clear(s.block)
		s.some = false
	}
}

func (s *summer) link(block []byte) {
	if bytes.Equal(block, zeros[:]) {
		return
	}
	sum := cas.Sum(block)
	s.chain(s.at, sum[:])
}

func (s *summer) chain(n int64, more []byte) {
	b := append(make([]byte, 0, 2*cas.HashSize+8), s.state[:]...)
	b = append(binary.LittleEndian.AppendUint64(b, uint64(n)), more...)
	s.state = cas.Sum(b)
}

// sum is that of a file of this size, whose bytes were added. The next file may be added then.
func (s *summer) sum(size int64) cas.Hash {
	s.flush()
	s.chain(size, nil)
	sum := s.state
	s.reset()
	return sum
}

// reset forgets what was added.
func (s *summer) reset() {
	if s.some {
		clear(s.block)
	}
	s.state, s.at, s.some = cas.Hash{}, 0, false
}

// sumOf reads a file, and hashes it by s. The meter, if there is one, is told.
func sumOf(ctx context.Context, src Source, file string, size int64, s *summer, buf []byte,
	m *meter) (cas.Hash, error) {
	s.reset()
	end := int64(0)
	err := Read(ctx, src, file, buf, func(p []byte, off int64) error {
		s.add(p, off)
		end = off + int64(len(p))
		if m != nil {
			m.add(0, int64(len(p)))
		}
		return nil
	})
	if err == nil && end > size {
		err = errChanged
	}
	return s.sum(size), err
}
