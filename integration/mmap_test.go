package integration

import (
	"bytes"
	"os"
	"testing"

	"ckptfs/integration/daemon"

	"golang.org/x/sys/unix"
)

// mapping is a file mapped by this process, whose descriptor is closed already.
type mapping struct {
	t     *testing.T
	bytes []byte
}

func (m *mount) mapFile(name string, n, flag, prot int) *mapping {
	m.t.Helper()
	f, err := os.OpenFile(m.path(name), flag, 0o644)
	m.must(err)
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() < int64(n) {
		m.must(f.Truncate(int64(n)))
	}
	b, err := unix.Mmap(int(f.Fd()), 0, n, prot, unix.MAP_SHARED)
	m.must(err)
	p := &mapping{m.t, b}
	m.t.Cleanup(p.unmap)
	return p
}

func (p *mapping) unmap() {
	if p.bytes != nil {
		_ = unix.Munmap(p.bytes)
		p.bytes = nil
	}
}

// want compares what the mapping shows after its page table entries are dropped, so that each page is asked for again.
func (p *mapping) want(when string, data []byte) {
	p.t.Helper()
	if err := unix.Madvise(p.bytes, unix.MADV_DONTNEED); err != nil {
		p.t.Fatal(err)
	}
	if !bytes.Equal(p.bytes, data) {
		p.t.Fatalf("the mapping %s: %s", when, difference(data, p.bytes))
	}
}

// TestMapAcrossStates: a mapping stays valid, whatever becomes of the raw copy, and nobody else is held up.
func TestMapAcrossStates(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		const n = 6 * mib
		data := noise(1, n)

		m.write("x", data)
		p := m.mapFile("x", n, os.O_RDONLY, unix.PROT_READ)
		p.want("of a resident file", data)
		m.sync()
		p.want("after packing", data)
		_, _ = m.CLI("evict", m.path("x")) // may say that it is in use
		p.want("after evict", data)
		m.want("x", data)
		p.unmap()
		m.evict("x")

		p = m.mapFile("x", n, os.O_RDONLY, unix.PROT_READ)
		p.want("of a packed file", data)
		_, _ = m.CLI("hydrate", m.path("x"))
		p.want("after hydrate", data)
		m.want("x", data)
		q := m.mapFile("x", n, os.O_RDONLY, unix.PROT_READ)
		q.want("made after hydrate, beside an older one", data)
		_, _ = m.CLI("evict", m.path("x"))
		p.want("after evict", data)
		q.want("after evict", data)
		p.unmap()
		q.want("when the older one is gone", data)
		q.unmap()
		m.hydrate("x")
		m.want("x", data)
		m.evict("x")
		m.want("x", data)
	})
}

// TestMapThenWrite: a reader's mapping of a packed file sees what is written to the file later.
func TestMapThenWrite(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		const n = 2 * mib
		data := noise(1, n)
		m.write("x", data)
		m.evict("x")
		p := m.mapFile("x", n, os.O_RDONLY, unix.PROT_READ)
		p.want("of a packed file", data)
		f, err := os.OpenFile(m.path("x"), os.O_WRONLY, 0)
		m.must(err)
		copy(data[mib:], "changed")
		_, err = f.WriteAt([]byte("changed"), mib)
		m.must(err)
		m.must(f.Close())
		m.want("x", data)
		m.evictWhenIdle("x", p)
		m.want("x", data)
	})
}

// evictWhenIdle drops the mapping, since an old mapping need not follow a change of the backing file.
func (m *mount) evictWhenIdle(name string, p *mapping) {
	m.t.Helper()
	p.unmap()
	m.evict(name)
}

// TestWritableMapping: while a file is mapped for writing its bytes may change without a word to the daemon, so it
// is packed only after the munmap, and then with its last bytes.
func TestWritableMapping(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		const n = 2 * mib
		data := noise(7, n)
		p := m.mapFile("x", n, os.O_RDWR|os.O_CREATE, unix.PROT_READ|unix.PROT_WRITE)
		copy(p.bytes, data[:mib])
		m.write("y", noise(8, mib))
		m.sync() // y is packed; x must not hold this up
		m.wantState("y", both, packed)
		m.wantState("x", resident)
		copy(p.bytes[mib:], data[mib:])
		m.must(unix.Msync(p.bytes, unix.MS_SYNC))
		m.wantState("x", resident)
		p.bytes[0] ^= 0xff // the last store, with no msync after it
		data[0] ^= 0xff
		p.unmap()
		m.must(daemon.Until("x to be packed after the munmap", func() bool {
			m.sync()
			return m.show("x").State != resident
		}))
		m.want("x", data)
		m.evict("x")
		m.want("x", data)

		// The same over a packed file: the mapping takes it back to resident.
		p = m.mapFile("x", n, os.O_RDWR, unix.PROT_READ|unix.PROT_WRITE)
		if !bytes.Equal(p.bytes, data) {
			t.Fatal(difference(data, p.bytes))
		}
		copy(p.bytes[100:], "through the mapping")
		copy(data[100:], "through the mapping")
		m.sync()
		m.want("x", data)
		copy(p.bytes[n-4:], "end.")
		copy(data[n-4:], "end.")
		p.unmap()
		m.must(daemon.Until("x to be packed after the munmap", func() bool {
			m.sync()
			_, _ = m.CLI("evict", m.path("x"))
			return m.show("x").State == packed
		}))
		m.want("x", data)
	})
}

// TestTorchHoldsMapping: tensors of torch.load(mmap=True) stay what they are while the file is packed, evicted,
// hydrated, replaced and removed.
func TestTorchHoldsMapping(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		runPython(t, "save.py", "zoo", "1", m.path("m.pt"))
		first := startSession(t, "hold.py", "zoo", "1", m.path("m.pt"))
		first.answer()
		m.sync()
		m.wantState("m.pt", both, packed)
		ask := func(s *session, when string) {
			t.Helper()
			if got := s.ask(); got != "same" {
				t.Fatalf("tensors mapped by torch, %s: %s", when, got)
			}
		}
		ask(first, "after packing")
		_, _ = m.CLI("evict", m.path("m.pt"))
		ask(first, "after evict")
		second := startSession(t, "hold.py", "zoo", "1", m.path("m.pt"))
		second.answer()
		_, _ = m.CLI("hydrate", m.path("m.pt"))
		ask(first, "after hydrate")
		ask(second, "after hydrate")
		runPython(t, "save.py", "plain", "2", m.path("new.pt"))
		m.must(os.Rename(m.path("new.pt"), m.path("m.pt")))
		runPython(t, "check.py", "plain", "2", m.path("m.pt"))
		ask(first, "after a rename over the name")
		m.must(os.Remove(m.path("m.pt")))
		m.sync()
		ask(first, "after unlink")
		ask(second, "after unlink")
	})
}
