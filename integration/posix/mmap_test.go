package posix

import (
	"bytes"
	"os"
	"testing"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"

	"golang.org/x/sys/unix"
)

// mapping is a file mapped by this process, whose descriptor is closed already.
type mapping struct {
	t     *testing.T
	bytes []byte
}

func mapFile(m *mounttest.Mount, name string, n, flag, prot int) *mapping {
	m.T.Helper()
	f, err := os.OpenFile(m.Path(name), flag, 0o644)
	m.Must(err)
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() < int64(n) {
		m.Must(f.Truncate(int64(n)))
	}
	b, err := unix.Mmap(int(f.Fd()), 0, n, prot, unix.MAP_SHARED)
	m.Must(err)
	p := &mapping{m.T, b}
	m.T.Cleanup(p.unmap)
	return p
}

func (p *mapping) unmap() {
	if p.bytes != nil {
		_ = unix.Munmap(p.bytes)
		p.bytes = nil
	}
}

// want compares what the mapping shows after its page table entries are dropped, so that each page is asked
// for again.
func (p *mapping) want(when string, data []byte) {
	p.t.Helper()
	if err := unix.Madvise(p.bytes, unix.MADV_DONTNEED); err != nil {
		p.t.Fatal(err)
	}
	if !bytes.Equal(p.bytes, data) {
		p.t.Fatalf("the mapping %s: %s", when, mounttest.Difference(data, p.bytes))
	}
}

// TestMapAcrossStates: a mapping stays valid, whatever becomes of the raw copy, and nobody else is held up.
func TestMapAcrossStates(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		const n = 6 * mib
		data := mounttest.Noise(1, n)

		m.Write("x", data)
		p := mapFile(m, "x", n, os.O_RDONLY, unix.PROT_READ)
		p.want("of a resident file", data)
		m.Sync()
		p.want("after packing", data)
		_, _ = m.CLI("evict", m.Path("x")) // may say that it is in use
		p.want("after evict", data)
		m.Want("x", data)
		p.unmap()
		m.Evict("x")

		p = mapFile(m, "x", n, os.O_RDONLY, unix.PROT_READ)
		p.want("of a packed file", data)
		_, _ = m.CLI("hydrate", m.Path("x"))
		p.want("after hydrate", data)
		m.Want("x", data)
		q := mapFile(m, "x", n, os.O_RDONLY, unix.PROT_READ)
		q.want("made after hydrate, beside an older one", data)
		_, _ = m.CLI("evict", m.Path("x"))
		p.want("after evict", data)
		q.want("after evict", data)
		p.unmap()
		q.want("when the older one is gone", data)
		q.unmap()
		m.Hydrate("x")
		m.Want("x", data)
		m.Evict("x")
		m.Want("x", data)
	})
}

// TestMapThenWrite: a reader's mapping of a packed file sees what is written to the file later.
func TestMapThenWrite(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		const n = 2 * mib
		data := mounttest.Noise(1, n)
		m.Write("x", data)
		m.Evict("x")
		p := mapFile(m, "x", n, os.O_RDONLY, unix.PROT_READ)
		p.want("of a packed file", data)
		f, err := os.OpenFile(m.Path("x"), os.O_WRONLY, 0)
		m.Must(err)
		copy(data[mib:], "changed")
		_, err = f.WriteAt([]byte("changed"), mib)
		m.Must(err)
		m.Must(f.Close())
		m.Want("x", data)
		evictWhenIdle(m, "x", p)
		m.Want("x", data)
	})
}

// evictWhenIdle drops the mapping, since an old mapping need not follow a change of the backing file.
func evictWhenIdle(m *mounttest.Mount, name string, p *mapping) {
	m.T.Helper()
	p.unmap()
	m.Evict(name)
}

// TestWritableMapping: while a file is mapped for writing its bytes may change without a word to the daemon,
// so it is packed only after the munmap, and then with its last bytes.
func TestWritableMapping(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		const n = 2 * mib
		data := mounttest.Noise(7, n)
		p := mapFile(m, "x", n, os.O_RDWR|os.O_CREATE, unix.PROT_READ|unix.PROT_WRITE)
		copy(p.bytes, data[:mib])
		m.Write("y", mounttest.Noise(8, mib))
		m.Sync() // y is packed; x must not hold this up
		m.WantState("y", mounttest.Resident, mounttest.Packed)
		m.WantState("x", mounttest.Plain)
		copy(p.bytes[mib:], data[mib:])
		m.Must(unix.Msync(p.bytes, unix.MS_SYNC))
		m.WantState("x", mounttest.Plain)
		p.bytes[0] ^= 0xff // the last store, with no msync after it
		data[0] ^= 0xff
		p.unmap()
		m.Must(daemon.Until("x to be packed after the munmap", func() bool {
			m.Sync()
			return m.Show("x").State != mounttest.Plain
		}))
		m.Want("x", data)
		m.Evict("x")
		m.Want("x", data)

		// The same over a packed file: the mapping takes it back to resident.
		p = mapFile(m, "x", n, os.O_RDWR, unix.PROT_READ|unix.PROT_WRITE)
		if !bytes.Equal(p.bytes, data) {
			t.Fatal(mounttest.Difference(data, p.bytes))
		}
		copy(p.bytes[100:], "through the mapping")
		copy(data[100:], "through the mapping")
		m.Sync()
		m.Want("x", data)
		copy(p.bytes[n-4:], "end.")
		copy(data[n-4:], "end.")
		p.unmap()
		m.Must(daemon.Until("x to be packed after the munmap", func() bool {
			m.Sync()
			_, _ = m.CLI("evict", m.Path("x"))
			return m.Show("x").State == mounttest.Packed
		}))
		m.Want("x", data)
	})
}

// TestTorchHoldsMapping: tensors of torch.load(mmap=True) stay what they are while the file is packed,
// evicted, hydrated, replaced and removed.
func TestTorchHoldsMapping(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		mounttest.RunPython(t, "save.py", "zoo", "1", m.Path("m.pt"))
		first := mounttest.StartSession(t, "hold_mapping.py", "zoo", "1", m.Path("m.pt"))
		first.Answer()
		m.Sync()
		m.WantState("m.pt", mounttest.Resident, mounttest.Packed)
		ask := func(s *mounttest.Session, when string) {
			t.Helper()
			if got := s.Ask(); got != "same" {
				t.Fatalf("tensors mapped by torch, %s: %s", when, got)
			}
		}
		ask(first, "after packing")
		_, _ = m.CLI("evict", m.Path("m.pt"))
		ask(first, "after evict")
		second := mounttest.StartSession(t, "hold_mapping.py", "zoo", "1", m.Path("m.pt"))
		second.Answer()
		_, _ = m.CLI("hydrate", m.Path("m.pt"))
		ask(first, "after hydrate")
		ask(second, "after hydrate")
		mounttest.RunPython(t, "save.py", "plain", "2", m.Path("new.pt"))
		m.Must(os.Rename(m.Path("new.pt"), m.Path("m.pt")))
		mounttest.RunPython(t, "check.py", "plain", "2", m.Path("m.pt"))
		ask(first, "after a rename over the name")
		m.Must(os.Remove(m.Path("m.pt")))
		m.Sync()
		ask(first, "after unlink")
		ask(second, "after unlink")
	})
}
