package handover

import (
	"encoding/binary"
	"errors"
	"testing"
)

// Whatever lies in a memory, it is read or refused, and can be worked with.
func FuzzMap(f *testing.F) {
	p := tiny.places()
	word := func(x uint64) []byte { return binary.NativeEndian.AppendUint64(nil, x) }
	f.Add(uint32(0), []byte("ckpthand"), uint32(8), word(2))
	f.Add(uint32(104), word(1), uint32(120), word(4096))
	f.Add(uint32(112), word(2*page), uint32(p.nodes), []byte{16, 0, 2, 0})
	f.Add(uint32(p.nodes), []byte{40, 0, 1, 3}, uint32(p.nodes+32), []byte("\x00\x01\x01\xff"))
	f.Add(uint32(64), word(1<<64-1), uint32(72), word(256))
	f.Add(uint32(128), word(8), uint32(136), word(16))
	f.Add(uint32(p.handles), word(1<<32|2), uint32(p.journal+640), word(1<<63|1))
	f.Add(uint32(192), word(1<<63|4096), uint32(144), word(8))
	sample := fresh(f, tiny)
	sample.BeginLife(true)
	play(sample, 1, 60)
	f.Fuzz(func(t *testing.T, at uint32, x []byte, at2 uint32, y []byte) {
		c := fresh(t, tiny)
		copy(c.b, sample.b)
		copy(c.b[int(at)%len(c.b):], x)
		copy(c.b[int(at2)%len(c.b):], y)
		m, err := open(c.Fd(), tiny)
		if err != nil {
			if !errors.Is(err, ErrVersion) && !errors.Is(err, ErrDamaged) {
				t.Error(err)
			}
			return
		}
		m.nodes.small = 1 << 10
		dump(m)
		m.BeginLife(true)
		play(m, 2, 100)
		for s := range m.Journal().Left() {
			s.Done(1, 2)
			s.Free()
		}
		for fh := range m.Handles().All() {
			if !m.Handles().Remove(fh) {
				t.Errorf("%#x is open and not to be removed", fh)
			}
		}
		nodes, err := m.Nodes().Load()
		if err != nil {
			t.Error(err) // the nonsense is behind the end now, or was never before it
		}
		if len(nodes) > int(tiny.half)/putSize {
			t.Errorf("%d nodes", len(nodes))
		}
		for id := range nodes {
			m.Nodes().Drop(id)
		}
		dump(m)
	})
}
