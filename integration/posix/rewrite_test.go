package posix

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"testing"

	"ckptfs/integration/mounttest"
)

// edits change a file, and a model of it in memory, in the same way.
var edits = []struct {
	name string
	do   func(path string, data []byte) ([]byte, error)
}{
	{"overwrite in place", func(path string, data []byte) ([]byte, error) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		p := mounttest.Noise(77, 5000)
		_, err = f.WriteAt(p, 300_001)
		copy(data[300_001:], p)
		return data, errors.Join(err, f.Close())
	}},
	{"append", func(path string, data []byte) ([]byte, error) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return nil, err
		}
		p := mounttest.Noise(78, 100_000)
		_, err = f.Write(p)
		return append(data, p...), errors.Join(err, f.Close())
	}},
	{"truncate shorter", func(path string, data []byte) ([]byte, error) {
		return data[:1_000_003], os.Truncate(path, 1_000_003)
	}},
	{"truncate longer", func(path string, data []byte) ([]byte, error) {
		n := len(data) + 200_000
		return append(data, make([]byte, 200_000)...), os.Truncate(path, int64(n))
	}},
	{"read and write through one descriptor", func(path string, data []byte) ([]byte, error) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		got := make([]byte, 4096)
		_, err = f.ReadAt(got, 65536)
		if err == nil && !bytes.Equal(got, data[65536:65536+4096]) {
			err = errors.New("other bytes read before the write")
		}
		_, werr := f.WriteAt([]byte("here"), 65536+100)
		copy(data[65536+100:], "here")
		_, rerr := f.ReadAt(got, 65536)
		if rerr == nil && !bytes.Equal(got, data[65536:65536+4096]) {
			rerr = errors.New("other bytes read after the write")
		}
		return data, errors.Join(err, werr, rerr, f.Close())
	}},
	{"write past the end, leaving a hole", func(path string, data []byte) ([]byte, error) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		end := int64(len(data) + 500_000)
		_, err = f.WriteAt([]byte("far"), end)
		return append(append(data, make([]byte, 500_000)...), "far"...), errors.Join(err, f.Close())
	}},
	{"open for writing, write nothing", func(path string, data []byte) ([]byte, error) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		return data, f.Close()
	}},
	{"O_TRUNC and other bytes", func(path string, _ []byte) ([]byte, error) {
		data := mounttest.Noise(79, 2*mib+7)
		return data, os.WriteFile(path, data, 0o644)
	}},
	{"O_TRUNC and nothing", func(path string, _ []byte) ([]byte, error) {
		return nil, os.WriteFile(path, nil, 0o644)
	}},
}

// TestRewritePacked: each way to change a file, when it is packed, hydrated, and resident only.
func TestRewritePacked(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		for i, e := range edits {
			t.Log(e.name)
			for j, prepare := range []func(){func() { m.Evict("f") },
				func() { m.Evict("f"); m.Hydrate("f") }, func() {}} {
				data := mounttest.Noise(uint64(10*i+j), 3*mib)
				m.Write("f", slices.Clone(data))
				prepare()
				data, err := e.do(m.Path("f"), data)
				m.Must(err)
				m.Want("f", data)
				m.Sync()
				m.Want("f", data)
				switch e.name {
				case "O_TRUNC and nothing":
				case "truncate longer", "write past the end, leaving a hole":
					m.WantState("f", mounttest.Plain) // files with holes keep them
				default:
					m.Evict("f")
				}
				m.Want("f", data)
				m.Must(os.Remove(m.Path("f")))
			}
		}
	})
}

// TestReadersKeepTheOld: who has a file open reads on in it, after another took its name or nobody has it.
func TestReadersKeepTheOld(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		old, young := mounttest.Noise(1, 3*mib), mounttest.Noise(2, 2*mib)
		for _, state := range []string{mounttest.Plain, mounttest.Resident, mounttest.Packed} {
			m.Write("f", old)
			switch state {
			case mounttest.Resident:
				m.Sync()
			case mounttest.Packed:
				m.Evict("f")
			}
			r, err := os.Open(m.Path("f"))
			m.Must(err)
			head := make([]byte, mib)
			_, err = io.ReadFull(r, head)
			m.Must(err)

			m.Write("new", young)
			m.Must(os.Rename(m.Path("new"), m.Path("f")))
			m.Want("f", young)
			m.Evict("f")
			m.Want("f", young)
			m.Must(os.Remove(m.Path("f")))
			m.Sync()
			if _, err := os.Stat(m.Path("f")); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("after unlink: %v", err)
			}

			rest, err := io.ReadAll(r)
			m.Must(err)
			if got := append(head, rest...); !bytes.Equal(got, old) {
				t.Fatalf("%s: the old file through its descriptor: %s", state, mounttest.Difference(old, got))
			}
			m.Must(r.Close())
		}
	})
}

// TestUnlinkedButOpen: a file without a name can be written and read until it is closed.
func TestUnlinkedButOpen(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		data := mounttest.Noise(1, 2*mib)
		f, err := os.Create(m.Path("f"))
		m.Must(err)
		defer f.Close()
		_, err = f.Write(data[:mib])
		m.Must(err)
		m.Must(os.Remove(m.Path("f")))
		m.Sync()
		_, err = f.Write(data[mib:])
		m.Must(err)
		got := make([]byte, len(data))
		_, err = f.ReadAt(got, 0)
		m.Must(err)
		if !bytes.Equal(got, data) {
			t.Fatal(mounttest.Difference(data, got))
		}
		m.Must(f.Close())
		if s := m.Stats(); s.Files != 0 || s.ResidentBytes != 0 {
			t.Errorf("the last handle of an unlinked file is closed, and stats says %+v", s)
		}
	})
}

// TestHardLinks: two names are one file, in whatever state, and either may go first.
func TestHardLinks(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		data := mounttest.Noise(1, 2*mib)
		m.Write("a", data)
		m.Must(os.Mkdir(m.Path("d"), 0o755))
		m.Must(os.Link(m.Path("a"), m.Path("d/b")))
		m.Evict("a")
		m.WantState("d/b", mounttest.Packed)
		m.Must(os.Link(m.Path("a"), m.Path("c")))
		m.Want("c", data)
		if s := m.Stats(); s.Files != 1 || s.LogicalBytes != int64(len(data)) {
			t.Errorf("one file of three names: stats says %+v", s)
		}
		f, err := os.OpenFile(m.Path("d/b"), os.O_WRONLY, 0)
		m.Must(err)
		_, err = f.WriteAt([]byte("through b"), 1000)
		m.Must(err)
		m.Must(f.Close())
		copy(data[1000:], "through b")
		m.Want("a", data)
		m.Evict("c")
		m.Must(os.Remove(m.Path("a")))
		m.Want("d/b", data)
		m.Remount()
		m.Must(os.Rename(m.Path("d/b"), m.Path("e")))
		m.Must(os.Remove(m.Path("c")))
		m.Want("e", data)
	})
}
