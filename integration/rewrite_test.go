package integration

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"testing"
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
		p := noise(77, 5000)
		_, err = f.WriteAt(p, 300_001)
		copy(data[300_001:], p)
		return data, errors.Join(err, f.Close())
	}},
	{"append", func(path string, data []byte) ([]byte, error) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return nil, err
		}
		p := noise(78, 100_000)
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
		data := noise(79, 2*mib+7)
		return data, os.WriteFile(path, data, 0o644)
	}},
	{"O_TRUNC and nothing", func(path string, _ []byte) ([]byte, error) {
		return nil, os.WriteFile(path, nil, 0o644)
	}},
}

// TestRewritePacked: each way to change a file, when it is packed, hydrated, and resident only.
func TestRewritePacked(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		for i, e := range edits {
			t.Log(e.name)
			for j, prepare := range []func(){func() { m.evict("f") }, func() { m.evict("f"); m.hydrate("f") }, func() {}} {
				data := noise(uint64(10*i+j), 3*mib)
				m.write("f", slices.Clone(data))
				prepare()
				data, err := e.do(m.path("f"), data)
				m.must(err)
				m.want("f", data)
				m.sync()
				m.want("f", data)
				switch e.name {
				case "O_TRUNC and nothing":
				case "truncate longer", "write past the end, leaving a hole":
					m.wantState("f", resident) // files with holes keep them
				default:
					m.evict("f")
				}
				m.want("f", data)
				m.must(os.Remove(m.path("f")))
			}
		}
	})
}

// TestReadersKeepTheOld: who has a file open reads on in it, after another took its name or nobody has it.
func TestReadersKeepTheOld(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		old, young := noise(1, 3*mib), noise(2, 2*mib)
		for _, state := range []string{resident, both, packed} {
			m.write("f", old)
			switch state {
			case both:
				m.sync()
			case packed:
				m.evict("f")
			}
			r, err := os.Open(m.path("f"))
			m.must(err)
			head := make([]byte, mib)
			_, err = io.ReadFull(r, head)
			m.must(err)

			m.write("new", young)
			m.must(os.Rename(m.path("new"), m.path("f")))
			m.want("f", young)
			m.evict("f")
			m.want("f", young)
			m.must(os.Remove(m.path("f")))
			m.sync()
			if _, err := os.Stat(m.path("f")); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("after unlink: %v", err)
			}

			rest, err := io.ReadAll(r)
			m.must(err)
			if got := append(head, rest...); !bytes.Equal(got, old) {
				t.Fatalf("%s: the old file through its descriptor: %s", state, difference(old, got))
			}
			m.must(r.Close())
		}
	})
}

// TestUnlinkedButOpen: a file without a name can be written and read until it is closed.
func TestUnlinkedButOpen(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		data := noise(1, 2*mib)
		f, err := os.Create(m.path("f"))
		m.must(err)
		defer f.Close()
		_, err = f.Write(data[:mib])
		m.must(err)
		m.must(os.Remove(m.path("f")))
		m.sync()
		_, err = f.Write(data[mib:])
		m.must(err)
		got := make([]byte, len(data))
		_, err = f.ReadAt(got, 0)
		m.must(err)
		if !bytes.Equal(got, data) {
			t.Fatal(difference(data, got))
		}
		m.must(f.Close())
		if s := m.stats(); s.Files != 0 || s.ResidentBytes != 0 {
			t.Errorf("the last handle of an unlinked file is closed, and stats says %+v", s)
		}
	})
}

// TestHardLinks: two names are one file, in whatever state, and either may go first.
func TestHardLinks(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		data := noise(1, 2*mib)
		m.write("a", data)
		m.must(os.Mkdir(m.path("d"), 0o755))
		m.must(os.Link(m.path("a"), m.path("d/b")))
		m.evict("a")
		m.wantState("d/b", packed)
		m.must(os.Link(m.path("a"), m.path("c")))
		m.want("c", data)
		if s := m.stats(); s.Files != 1 || s.LogicalBytes != int64(len(data)) {
			t.Errorf("one file of three names: stats says %+v", s)
		}
		f, err := os.OpenFile(m.path("d/b"), os.O_WRONLY, 0)
		m.must(err)
		_, err = f.WriteAt([]byte("through b"), 1000)
		m.must(err)
		m.must(f.Close())
		copy(data[1000:], "through b")
		m.want("a", data)
		m.evict("c")
		m.must(os.Remove(m.path("a")))
		m.want("d/b", data)
		m.remount()
		m.must(os.Rename(m.path("d/b"), m.path("e")))
		m.must(os.Remove(m.path("c")))
		m.want("e", data)
	})
}
