package commands

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// cached is how many bytes the kernel has in memory of the files at some paths. It skips the test where Linux
// cannot tell, and where the files are memory.
func cached(m *mounttest.Mount, paths ...string) (bytes int64) {
	m.T.Helper()
	for _, p := range paths {
		f, err := os.Open(p)
		m.Must(err)
		defer f.Close()
		var fs unix.Statfs_t
		m.Must(unix.Fstatfs(int(f.Fd()), &fs))
		if fs.Type == unix.TMPFS_MAGIC {
			m.T.Skip("files of a filesystem in memory never leave it")
		}
		var of unix.Cachestat_t
		if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &of, 0); err != nil {
			m.T.Skipf("cachestat, which Linux has since 6.5: %v", err)
		}
		bytes += int64(of.Cache) * int64(os.Getpagesize())
	}
	return bytes
}

// forgetPages has the kernel drop the pages of files.
func forgetPages(m *mounttest.Mount, paths ...string) {
	m.T.Helper()
	for _, p := range paths {
		f, err := os.Open(p)
		m.Must(err)
		m.Must(unix.Fsync(int(f.Fd())))
		m.Must(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		m.Must(f.Close())
	}
}

func segments(m *mounttest.Mount) []string {
	m.T.Helper()
	all, err := filepath.Glob(filepath.Join(m.Store, "segments", "*"))
	m.Must(err)
	if len(all) == 0 {
		m.T.Fatal("there are no segments")
	}
	return all
}

// What is read of a packed file is in memory once: its own pages, and not those of the segments, but for what
// the kernel reads ahead. They go when the reader says so.
func TestMemoryGivenBack(t *testing.T) {
	t.Parallel()
	const size = 96 << 20 // many times what disks have the kernel read ahead
	for how, read := range map[string]func(m *mounttest.Mount, f *os.File){
		"read": func(m *mounttest.Mount, f *os.File) {
			_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, f, make([]byte, 1<<20))
			m.Must(err)
		},
		"mapped": func(m *mounttest.Mount, f *os.File) {
			p, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
			m.Must(err)
			sum := 0
			for i := 0; i < len(p); i += os.Getpagesize() {
				sum += int(p[i])
			}
			fmt.Fprint(io.Discard, sum)
			m.Must(unix.Munmap(p))
		},
	} {
		t.Run(how, func(t *testing.T) {
			m := mounttest.New(t, "--hot-size", "0")
			data, _ := mounttest.SafetensorsOf([]string{"w"}, [][]byte{mounttest.Noise(1, size)})
			m.Write("w.safetensors", data)
			m.EvictAll()
			all := segments(m)
			forgetPages(m, all...)
			f, err := os.Open(m.Path("w.safetensors"))
			m.Must(err)
			defer f.Close()
			read(m, f)
			if n := cached(m, m.Path("w.safetensors")); n < size {
				t.Errorf("%d bytes of the file are in memory after it was read", n)
			}
			if n := cached(m, all...); n > size/4 {
				t.Errorf("%d bytes of the segments are in memory, too", n)
			}
			m.Must(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
			if n := cached(m, m.Path("w.safetensors")); n != 0 {
				t.Errorf("%d bytes are in memory after posix_fadvise", n)
			}
			m.WantState("w.safetensors", mounttest.Packed)
			m.Want("w.safetensors", data)
		})
	}
}

// A file that a rule has read once leaves memory when the last program closes it, whatever it is read from,
// and not before.
func TestReadOnce(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	m := mounttest.New(t)
	files := map[string][]byte{}
	for i, name := range []string{"once/packed.bin", "once/resident.bin", "once/plain.gguf", "other.bin"} {
		files[name] = mounttest.Noise(uint64(i), size)
	}
	m.Must(os.Mkdir(m.Path("once"), 0o755))
	m.Run("policy", "add", "--in", m.Dir, "*.gguf", "plain")
	for name, data := range files {
		m.Write(name, data)
	}
	m.Sync()
	m.Run("policy", "add", "--in", m.Dir, "once/**", "read-once")
	inMemory := func(name string) int64 {
		return cached(m, m.Path(name), filepath.Join(m.Store, "tree", name))
	}
	// The copy first: who looks at the file in the mount closes it, too.
	gone := func(name string) {
		t.Helper()
		m.Must(daemon.Until(name+" to leave memory", func() bool {
			return cached(m, filepath.Join(m.Store, "tree", name)) == 0
		}))
		m.Must(daemon.Until(name+" to leave memory", func() bool { return inMemory(name) == 0 }))
	}
	m.EvictAll()
	m.Hydrate("once/resident.bin", "other.bin")
	for name, data := range files {
		f, err := os.Open(m.Path(name))
		m.Must(err)
		p, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
		m.Must(err)
		m.Must(f.Close())
		if !bytes.Equal(p, data) {
			t.Errorf("%s: %s", name, mounttest.Difference(data, p))
		}
		m.Want(name, data) // another program that closes it
		if n := inMemory(name); n < size {
			t.Errorf("%s: %d bytes are in memory while it is mapped", name, n)
		}
		m.Must(unix.Munmap(p))
		if name == "other.bin" {
			continue
		}
		gone(name)
	}
	if n := inMemory("other.bin"); n < size {
		t.Errorf("%d bytes are in memory of a file that no rule covers", n)
	}
	// Packed files that were read get a local copy, which does not stay in memory either.
	m.WantState("once/packed.bin", mounttest.Resident)
	gone("once/packed.bin")
	for name, data := range files {
		m.Want(name, data)
	}

	said := m.Run("warm", m.Path("once"))
	mounttest.WantSaid(t, said, "read 0 files")
	m.Run("policy", "remove", "--in", m.Dir, "once/**")
	mounttest.WantSaid(t, m.Run("warm", m.Path("once")), "read 3 files")
	if n := inMemory("once/resident.bin"); n < size {
		t.Errorf("%d bytes are in memory of a file that was warmed", n)
	}
}
