package disk

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"sync"
	"syscall"
	"testing"
	"unsafe"
)

func TestOS(t *testing.T) { conformance(t, OS{}, t.TempDir()) }

func TestMem(t *testing.T) {
	m := NewMem()
	if err := m.MkdirAll("/tmp/x", 0o755); err != nil {
		t.Fatal(err)
	}
	conformance(t, m, "/tmp/x")
}

// conformance is what every FS must do.
func conformance(t *testing.T, fsys FS, root string) {
	create := func(t *testing.T, name string) File {
		t.Helper()
		f, err := fsys.OpenFile(path.Join(root, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	write := func(t *testing.T, f File, off int64, p string) {
		t.Helper()
		if n, err := f.WriteAt([]byte(p), off); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	content := func(t *testing.T, f File) string {
		t.Helper()
		n, err := f.Size()
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, n)
		if _, err := f.ReadAt(p, 0); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		return string(p)
	}
	want := func(t *testing.T, err, is error) {
		t.Helper()
		if !errors.Is(err, is) {
			t.Errorf("error %v, want %v", err, is)
		}
	}

	t.Run("allocated", func(t *testing.T) {
		f := create(t, "allocated")
		p := bytes.Repeat([]byte("x"), 64<<10)
		write(t, f, 0, string(p))
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		before, err := f.Allocated()
		if err != nil || before < 64<<10 {
			t.Fatal(before, err)
		}
		if err := f.PunchHole(100, 32<<10); err != nil {
			t.Fatal(err)
		}
		after, err := f.Allocated()
		if err != nil || after > before-28<<10 {
			t.Errorf("%d bytes after, %d before, %v", after, before, err)
		}
		if n, err := f.Size(); n != 64<<10 || err != nil {
			t.Error(n, err)
		}
	})

	t.Run("open", func(t *testing.T) {
		_, err := fsys.OpenFile(path.Join(root, "none"), os.O_RDONLY, 0)
		want(t, err, fs.ErrNotExist)
		_, err = fsys.OpenFile(path.Join(root, "none/none"), os.O_RDWR|os.O_CREATE, 0o644)
		want(t, err, fs.ErrNotExist)
		f := create(t, "open")
		write(t, f, 0, "abc")
		_, err = fsys.OpenFile(path.Join(root, "open"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		want(t, err, fs.ErrExist)
		r, err := fsys.OpenFile(path.Join(root, "open"), os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if got := content(t, r); got != "abc" {
			t.Errorf("read %q", got)
		}
		if _, err := r.WriteAt([]byte("x"), 0); err == nil {
			t.Error("wrote to a file opened for reading")
		}
		g, err := fsys.OpenFile(path.Join(root, "open"), os.O_RDWR|os.O_TRUNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		if got := content(t, f); got != "" {
			t.Errorf("after O_TRUNC %q", got)
		}
	})

	t.Run("read and write", func(t *testing.T) {
		f := create(t, "rw")
		write(t, f, 4, "data")
		write(t, f, 2, "xy")
		if got := content(t, f); got != "\x00\x00xydata" {
			t.Errorf("%q", got)
		}
		p := make([]byte, 4)
		if n, err := f.ReadAt(p, 6); n != 2 || err != io.EOF {
			t.Error(n, err)
		}
		if n, err := f.ReadAt(p, 100); n != 0 || err != io.EOF {
			t.Error(n, err)
		}
		if _, err := f.ReadAt(p, -1); err == nil {
			t.Error("read at -1")
		}
		if err := f.Sync(); err != nil {
			t.Error(err)
		}
	})

	t.Run("truncate", func(t *testing.T) {
		f := create(t, "trunc")
		write(t, f, 0, "abcdef")
		for _, c := range []struct {
			n    int64
			want string
		}{{3, "abc"}, {5, "abc\x00\x00"}, {0, ""}} {
			if err := f.Truncate(c.n); err != nil {
				t.Fatal(err)
			}
			if got := content(t, f); got != c.want {
				t.Errorf("to %d: %q", c.n, got)
			}
		}
	})

	t.Run("punch", func(t *testing.T) {
		f := create(t, "punch")
		write(t, f, 0, "abcdef")
		if err := f.PunchHole(1, 2); errors.Is(err, syscall.EOPNOTSUPP) {
			t.Skip("this filesystem has no holes")
		} else if err != nil {
			t.Fatal(err)
		}
		for _, r := range []Range{{4, 100}, {50, 10}, {0, 0}} {
			if err := f.PunchHole(r.off, r.n); err != nil {
				t.Fatal(err)
			}
		}
		if got := content(t, f); got != "a\x00\x00d\x00\x00" {
			t.Errorf("%q", got)
		}
	})

	t.Run("names", func(t *testing.T) {
		dir := path.Join(root, "a/b")
		for range 2 {
			if err := fsys.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		write(t, create(t, "a/b/two"), 0, "2")
		write(t, create(t, "a/b/one"), 0, "1")
		names, err := fsys.ReadDir(dir)
		if err != nil || !slices.Equal(names, []string{"one", "two"}) {
			t.Error(names, err)
		}
		if err := fsys.Rename(path.Join(dir, "one"), path.Join(dir, "two")); err != nil {
			t.Fatal(err)
		}
		f, err := fsys.OpenFile(path.Join(dir, "two"), os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		want(t, fsys.Rename(path.Join(dir, "one"), path.Join(dir, "three")), fs.ErrNotExist)
		want(t, fsys.Remove(dir), syscall.ENOTEMPTY)
		if err := fsys.SyncDir(dir); err != nil {
			t.Error(err)
		}
		if err := fsys.Remove(path.Join(dir, "two")); err != nil {
			t.Fatal(err)
		}
		want(t, fsys.Remove(path.Join(dir, "two")), fs.ErrNotExist)
		if got := content(t, f); got != "1" {
			t.Errorf("unlinked while open: %q", got)
		}
		if err := fsys.Remove(dir); err != nil {
			t.Error(err)
		}
		_, err = fsys.ReadDir(dir)
		want(t, err, fs.ErrNotExist)
		want(t, fsys.SyncDir(dir), fs.ErrNotExist)
		want(t, fsys.MkdirAll(path.Join(root, "rw", "x"), 0o755), syscall.ENOTDIR)
	})

	t.Run("closed", func(t *testing.T) {
		f := create(t, "closed")
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := f.ReadAt(make([]byte, 1), 0)
		want(t, err, os.ErrClosed)
		want(t, f.Sync(), os.ErrClosed)
	})

	t.Run("concurrent", func(t *testing.T) {
		f := create(t, "concurrent")
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				p := bytes.Repeat([]byte{byte(i)}, 1000)
				if _, err := f.WriteAt(p, int64(i)*1000); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		got := content(t, f)
		for i := range got {
			if got[i] != byte(i/1000) {
				t.Fatalf("byte %d is %d", i, got[i])
			}
		}
	})
}

type Range struct{ off, n int64 }

// page is memory for ReadPast: n bytes from the begin of a page.
func page(n int) []byte {
	p := make([]byte, n+BlockSize)
	skip := int(-uintptr(unsafe.Pointer(&p[0])) & (BlockSize - 1))
	return p[skip : skip+n]
}

// Whole blocks are read the same way past the page cache, from it, of what was just written, and up to the
// file's end.
func TestReadPast(t *testing.T) {
	m := NewMem()
	if err := m.MkdirAll("/d", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, dir string
		fs        FS
	}{
		{"os", t.TempDir(), OS{}}, {"tmpfs", "/dev/shm", OS{}}, {"mem", "/d", m},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := path.Join(c.dir, "ckptfs-read-past")
			f, err := c.fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
			if err != nil {
				t.Skip(err)
			}
			defer c.fs.Remove(name)
			defer f.Close()
			want := make([]byte, 1<<20+777)
			rand.NewChaCha8([32]byte{1}).Read(want)
			if _, err := f.WriteAt(want, 0); err != nil {
				t.Fatal(err)
			}
			check := func(when string) {
				t.Helper()
				for _, r := range [][2]int{{0, 1 << 20}, {BlockSize, BlockSize}, {1 << 19, 1 << 20},
					{1 << 20, BlockSize}, {2 << 20, BlockSize}} {
					p := page(r[1])
					n, err := f.ReadPast(p, int64(r[0]))
					part := want[min(r[0], len(want)):min(r[0]+r[1], len(want))]
					if !bytes.Equal(p[:n], part) || (n < r[1]) != (err == io.EOF) || n == r[1] && err != nil {
						t.Errorf("%s: %d bytes at %d: %d, %v", when, r[1], r[0], n, err)
					}
				}
			}
			check("just written")
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			if err := f.Forget(BlockSize); err != nil {
				t.Fatal(err)
			}
			if o, ok := f.(*osFile); ok {
				dropped := !o.cached(0, BlockSize)
				check("on the disk")
				if dropped && o.past != nil && o.cached(0, BlockSize) {
					t.Error("it went through the page cache")
				}
			}
			want[5000]++
			if _, err := f.WriteAt(want[5000:5001], 5000); err != nil {
				t.Fatal(err)
			}
			check("changed")
		})
	}
}

// Where O_DIRECT is refused, ReadPast reads.
func TestReadPastRefused(t *testing.T) {
	const name = "/proc/version"
	want, err := os.ReadFile(name)
	if err != nil {
		t.Skip(err)
	}
	f, err := OS{}.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := page(BlockSize)
	if n, err := f.ReadPast(p, 0); !bytes.Equal(p[:n], want) || err != io.EOF {
		t.Error(n, err)
	}
	if f.(*osFile).past != nil {
		t.Error("it was not refused")
	}
}
