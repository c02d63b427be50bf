package outlive

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

func init() {
	uses["write"] = write
	uses["packed"] = packed
	uses["held"] = held
	uses["removed"] = removed
	uses["locks"] = locks
	uses["views"] = views
	uses["remade"] = remade
	uses["save"] = save
}

// aligned is a buffer for O_DIRECT.
func aligned(n int) []byte {
	b := make([]byte, n+4096)
	off := int(-uintptr(unsafe.Pointer(&b[0])) & 4095)
	return b[off : off+n : off+n]
}

// write writes to files in every way there is, and compares them with what was written.
func write(w *worker) func() {
	const size = 1 << 20
	return func() {
		name := w.path(fmt.Sprint("f", w.rng.IntN(6)))
		flags := []int{0, unix.O_SYNC, unix.O_APPEND, unix.O_DIRECT, unix.O_DSYNC}[w.rng.IntN(5)]
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC|flags, 0o644)
		if flags == unix.O_DIRECT && err == unix.EINVAL {
			return
		}
		w.check(err, "open %s %#x", name, flags)
		defer func() { w.check(unix.Close(fd), "close %s", name) }()
		var want []byte
		for range 12 {
			n := 4096 * (1 + w.rng.IntN(40))
			if flags&unix.O_DIRECT == 0 {
				n -= w.rng.IntN(4095)
			}
			data := aligned(n)
			copy(data, mounttest.Noise(w.rng.Uint64(), n))
			switch {
			case flags == unix.O_APPEND:
				k, err := unix.Write(fd, data)
				w.check(err, "append to %s", name)
				w.want(k == n, "append to %s: %d of %d", name, k, n)
				want = append(want, data...)
			case flags != unix.O_DIRECT && w.rng.IntN(4) == 0:
				w.mapped(fd, name, &want, data)
			default:
				off := w.rng.IntN(size)
				if flags == unix.O_DIRECT {
					off &^= 4095
				}
				k, err := unix.Pwrite(fd, data, int64(off))
				w.check(err, "pwrite %s, %d at %d", name, n, off)
				w.want(k == n, "pwrite %s: %d of %d", name, k, n)
				if len(want) < off+n {
					want = append(want, make([]byte, off+n-len(want))...)
				}
				copy(want[off:], data)
			}
			switch w.rng.IntN(6) {
			case 0:
				w.check(unix.Fsync(fd), "fsync %s", name)
			case 1:
				w.check(unix.Fdatasync(fd), "fdatasync %s", name)
			case 2:
				n := w.rng.IntN(len(want) + 1)
				w.check(unix.Ftruncate(fd, int64(n)), "ftruncate %s", name)
				want = want[:n:n]
			case 3:
				w.same(name, want)
			}
		}
		w.same(name, want)
	}
}

// mapped writes by a shared mapping.
func (w *worker) mapped(fd int, name string, want *[]byte, data []byte) {
	if len(*want) == 0 {
		return
	}
	p, err := unix.Mmap(fd, 0, len(*want), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	w.check(err, "mmap %s", name)
	off := w.rng.IntN(len(p))
	copy(p[off:], data)
	copy((*want)[off:], data)
	if w.rng.IntN(2) == 0 {
		w.check(unix.Msync(p, unix.MS_SYNC), "msync %s", name)
	}
	w.want(bytes.Equal(p, *want), "%s by its mapping: %s", name, mounttest.Difference(*want, p))
	w.check(unix.Munmap(p), "munmap %s", name)
}

// same compares a file, by another descriptor.
func (w *worker) same(name string, want []byte) {
	got, err := os.ReadFile(name)
	w.check(err, "read %s", name)
	w.want(bytes.Equal(got, want), "%s: %s", name, mounttest.Difference(want, got))
}

// save saves as programs do: to a temporary name, then renamed. What was saved is packed and evicted by the
// commands beside, and read again.
func save(w *worker) func() {
	saved := map[string]uint64{}
	return func() {
		name := fmt.Sprint("s", w.rng.IntN(12))
		if seed, ok := saved[name]; ok {
			w.same(w.path(name), mounttest.Noise(seed, 100_000+int(seed%400_000)))
		}
		seed := w.rng.Uint64()
		f, err := os.OpenFile(w.path(name+".tmp"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		w.check(err, "create %s.tmp", name)
		_, err = f.Write(mounttest.Noise(seed, 100_000+int(seed%400_000)))
		w.check(err, "write %s.tmp", name)
		if w.rng.IntN(2) == 0 {
			w.check(f.Sync(), "fsync %s.tmp", name)
		}
		w.check(f.Close(), "close %s.tmp", name)
		w.check(os.Rename(w.path(name+".tmp"), w.path(name)), "rename %s.tmp", name)
		saved[name] = seed
	}
}

// noise is files that never change.
func (w *worker) noise(n, size int) [][]byte {
	var all [][]byte
	for i := range n {
		data := mounttest.Noise(uint64(1000+i), size+i*7777)
		w.check(os.WriteFile(w.path(fmt.Sprint("n", i)), data, 0o644), "write n%d", i)
		all = append(all, data)
	}
	return all
}

// packed reads files that others evict, whole, at random and mapped, and by descriptors that stay open.
func packed(w *worker) func() {
	all := w.noise(6, 600_000)
	var open []*os.File
	for i := range all {
		f, err := os.Open(w.path(fmt.Sprint("n", i)))
		w.check(err, "open n%d", i)
		open = append(open, f)
	}
	return func() {
		i := w.rng.IntN(len(all))
		name, want := w.path(fmt.Sprint("n", i)), all[i]
		switch w.rng.IntN(4) {
		case 0:
			w.same(name, want)
		case 1:
			for range 10 {
				off := w.rng.IntN(len(want))
				p := make([]byte, min(1+w.rng.IntN(100_000), len(want)-off))
				n, err := open[i].ReadAt(p, int64(off))
				w.check(err, "pread %s", name)
				w.want(bytes.Equal(p[:n], want[off:off+n]), "pread %s, %d at %d", name, n, off)
			}
		case 2:
			p, err := unix.Mmap(int(open[i].Fd()), 0, len(want), unix.PROT_READ, unix.MAP_SHARED)
			w.check(err, "mmap %s", name)
			w.want(bytes.Equal(p, want), "%s by its mapping: %s", name, mounttest.Difference(want, p))
			w.check(unix.Munmap(p), "munmap")
		case 3:
			f, err := os.Open(name)
			w.check(err, "open %s", name)
			w.check(open[i].Close(), "close %s", name)
			open[i] = f
		}
	}
}

// held reads and writes a file that stays open, and opens it again and again beside that.
func held(w *worker) func() {
	const size = 300_000
	want := mounttest.Noise(w.rng.Uint64(), size)
	name := w.path("held")
	w.check(os.WriteFile(name, want, 0o644), "write held")
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	w.check(err, "open held")
	for i := range 60 { // many handles for each next daemon
		_, err := os.Open(name)
		w.check(err, "open held, %d", i)
	}
	p, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	w.check(err, "mmap held")
	return func() {
		data := mounttest.Noise(w.rng.Uint64(), 1+w.rng.IntN(50_000))
		off := w.rng.IntN(size - len(data))
		if w.rng.IntN(3) == 0 {
			copy(p[off:], data)
		} else {
			_, err := f.WriteAt(data, int64(off))
			w.check(err, "pwrite held")
		}
		copy(want[off:], data)
		g, err := os.OpenFile(name, []int{os.O_RDONLY, os.O_RDWR}[w.rng.IntN(2)], 0)
		w.check(err, "open held again")
		got, err := io.ReadAll(g)
		w.check(err, "read held")
		w.want(bytes.Equal(got, want), "held: %s", mounttest.Difference(want, got))
		w.check(g.Close(), "close held")
		if w.rng.IntN(8) == 0 {
			w.check(f.Sync(), "fsync held")
		}
	}
}

// removed uses files that have no name: removed ones that are open, and those of O_TMPFILE, some of which get
// a name; and directories that are removed while they are open.
func removed(w *worker) func() {
	type ghost struct {
		fd   int
		want []byte
		dir  bool
	}
	var ghosts []*ghost
	n := 0
	return func() {
		n++
		switch k := w.rng.IntN(8); {
		case k < 3 && len(ghosts) < 12:
			g := &ghost{want: mounttest.Noise(w.rng.Uint64(), 70_000+w.rng.IntN(90_000))}
			var err error
			name := w.path(fmt.Sprint("g", n))
			switch k {
			case 0:
				g.fd, err = unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
				w.check(err, "create %s", name)
				_, err = unix.Write(g.fd, g.want)
				w.check(err, "write %s", name)
				if w.rng.IntN(2) == 0 {
					w.check(unix.Unlink(name), "unlink %s", name)
				} else { // by another file that takes its name
					w.check(os.WriteFile(name+"x", nil, 0o600), "write %sx", name)
					w.check(unix.Rename(name+"x", name), "rename onto %s", name)
					w.check(unix.Unlink(name), "unlink %s", name)
				}
			case 1:
				g.fd, err = unix.Open(w.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
				w.check(err, "O_TMPFILE")
				_, err = unix.Write(g.fd, g.want)
				w.check(err, "write an O_TMPFILE")
			case 2:
				g.dir = true
				w.check(unix.Mkdir(name, 0o755), "mkdir %s", name)
				g.fd, err = unix.Open(name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
				w.check(err, "open %s", name)
				w.check(unix.Rmdir(name), "rmdir %s", name)
			}
			ghosts = append(ghosts, g)
		case len(ghosts) > 0:
			i := w.rng.IntN(len(ghosts))
			g := ghosts[i]
			var st unix.Stat_t
			w.check(unix.Fstat(g.fd, &st), "fstat a removed file")
			w.want(st.Nlink == 0, "a removed file has %d links", st.Nlink)
			if g.dir {
				_, err := unix.Openat(g.fd, "x", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
				w.fails(err, unix.ENOENT, "create in a removed directory")
				var got [4096]byte
				_, err = unix.Seek(g.fd, 0, 0)
				w.check(err, "seek in a removed directory")
				k, err := unix.Getdents(g.fd, got[:])
				if err != unix.ENOENT { // what a filesystem says that has no . and .. any more
					w.check(err, "list a removed directory")
				}
				w.want(k <= 0 || len(namesIn(got[:k])) == 0, "a removed directory has %q", namesIn(got[:max(k, 0)]))
			} else {
				w.want(st.Size == int64(len(g.want)), "a removed file has %d bytes, not %d", st.Size, len(g.want))
				got := make([]byte, len(g.want))
				k, err := unix.Pread(g.fd, got, 0)
				w.check(err, "read a removed file")
				w.want(bytes.Equal(got[:k], g.want), "a removed file: %s", mounttest.Difference(g.want, got[:k]))
				data := mounttest.Noise(w.rng.Uint64(), 5000)
				off := w.rng.IntN(len(g.want) - len(data))
				_, err = unix.Pwrite(g.fd, data, int64(off))
				w.check(err, "write a removed file")
				copy(g.want[off:], data)
			}
			if w.rng.IntN(3) == 0 {
				ghosts = append(ghosts[:i], ghosts[i+1:]...)
				w.check(unix.Close(g.fd), "close a removed file")
			}
		}
		if w.rng.IntN(3) == 0 { // an O_TMPFILE that gets a name
			want := mounttest.Noise(w.rng.Uint64(), 80_000)
			fd, err := unix.Open(w.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
			w.check(err, "O_TMPFILE to be linked")
			_, err = unix.Write(fd, want)
			w.check(err, "write")
			name := w.path(fmt.Sprint("linked", n))
			w.check(unix.Linkat(unix.AT_FDCWD, fmt.Sprint("/proc/self/fd/", fd), unix.AT_FDCWD, name,
				unix.AT_SYMLINK_FOLLOW), "linkat %s", name)
			w.check(unix.Close(fd), "close")
			w.same(name, want)
			w.check(unix.Unlink(name), "unlink %s", name)
		}
	}
}

// locks holds locks, which nobody else may get meanwhile.
func locks(w *worker) func() {
	name := w.path("locked")
	w.check(os.WriteFile(name, []byte("x"), 0o644), "write locked")
	open := func() int {
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
		w.check(err, "open locked")
		return fd
	}
	a, b := open(), open()
	lock := func() unix.Flock_t { return unix.Flock_t{Type: unix.F_WRLCK, Start: 10, Len: 5} }
	w.check(unix.Flock(a, unix.LOCK_EX), "flock")
	l := lock()
	w.check(unix.FcntlFlock(uintptr(b), unix.F_OFD_SETLK, &l), "fcntl")
	return func() {
		c := open()
		w.fails(unix.Flock(c, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK, "flock of a locked file")
		l := lock()
		w.fails(unix.FcntlFlock(uintptr(c), unix.F_OFD_SETLK, &l), unix.EAGAIN, "fcntl of a locked file")
		w.check(unix.Close(c), "close locked")
		if w.rng.IntN(10) == 0 {
			w.check(unix.Flock(a, unix.LOCK_UN), "unlock")
			w.check(unix.Flock(a, unix.LOCK_EX|unix.LOCK_NB), "flock again")
		}
	}
}

// npz is a file of NumPy's with one array of n bytes.
func npz(seed uint64, n int) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	f, err := z.CreateHeader(&zip.FileHeader{Name: "weight.npy", Method: zip.Store})
	if err != nil {
		panic(err)
	}
	head := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }", n)
	head += strings.Repeat(" ", 63-(10+len(head))%64) + "\n"
	_, _ = f.Write(binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(head))))
	_, _ = f.Write([]byte(head))
	_, _ = f.Write(mounttest.Noise(seed, n))
	_ = z.Close()
	return b.Bytes()
}

// views reads views, and the names of .ckptfs. Their bytes are the same all the time.
func views(w *worker) func() {
	var names []string
	sums := map[string][32]byte{}
	for step := range 3 {
		dir := filepath.Join(w.mount, "runs", "x", fmt.Sprint(step))
		w.check(os.MkdirAll(dir, 0o755), "mkdir %s", dir)
		model := filepath.Join(dir, "model.npz")
		w.check(os.WriteFile(model, npz(uint64(step), 400_000), 0o644), "write %s", model)
		names = append(names, filepath.Join(dir, "model.safetensors"), model)
	}
	_ = filepath.WalkDir(filepath.Join(w.mount, ".ckptfs"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(p, "remade") {
			return fs.SkipDir // which changes
		}
		if err == nil && filepath.Base(p) == "make" {
			return fs.SkipDir // an open file there ends with the daemon that computes it
		}
		if err == nil && d.Type().IsRegular() && len(names) < 40 {
			names = append(names, p)
		}
		return nil
	})
	return func() {
		name := names[w.rng.IntN(len(names))]
		p, err := os.ReadFile(name)
		if strings.Contains(name, "/lcp/") && errors.Is(err, unix.ENODATA) {
			return // the step's model is not known yet
		}
		w.check(err, "read %s", name)
		if strings.HasSuffix(name, "model.safetensors") && w.rng.IntN(2) == 0 {
			f, err := os.Open(name)
			w.check(err, "open %s", name)
			q, err := unix.Mmap(int(f.Fd()), 0, len(p), unix.PROT_READ, unix.MAP_PRIVATE)
			w.check(err, "mmap %s", name)
			w.want(bytes.Equal(p, q), "%s by its mapping: %s", name, mounttest.Difference(p, q))
			w.check(unix.Munmap(q), "munmap")
			w.check(f.Close(), "close %s", name)
		}
		if !strings.Contains(name, "/.ckptfs/") {
			sum := sha256.Sum256(p)
			was, ok := sums[name]
			w.want(!ok || sum == was, "%s has other bytes than before", name)
			sums[name] = sum
		}
		var st unix.Stat_t
		w.check(unix.Stat(filepath.Join(w.mount, ".ckptfs"), &st), "stat .ckptfs")
	}
}

// viewHeld is a view that stays open. Its source may be written over, removed or replaced.
type viewHeld struct {
	name   string
	fd     int
	want   []byte
	mapped []byte
	source int  // which of those that had the name
	over   bool // the source was written over: what is not in the kernel's cache cannot be read any more
}

// remade reads views whose source is written over in place, replaced or removed. A view that is opened has
// the bytes that the source has then. One that stays open goes on having those that it had, or fails with
// ESTALE once the source was written over.
func remade(w *worker) func() {
	const size = 300_000
	dir := filepath.Join(w.mount, "runs", "remade", "1")
	w.check(os.MkdirAll(dir, 0o755), "mkdir %s", dir)
	source := filepath.Join(dir, "model.npz")
	views := []string{
		filepath.Join(dir, "model.safetensors"),
		filepath.Join(w.mount, ".ckptfs/tensors/runs/remade/1/model.npz/weight.npy"),
	}
	var held []*viewHeld
	at := 0 // which source it is
	change := func(seed uint64) {
		data := npz(seed, size)
		switch w.rng.IntN(5) {
		case 0, 1: // over the one before
			for _, h := range held {
				if h.source == at && !h.over {
					h.over = true
					w.check(unix.Munmap(h.mapped), "munmap") // a page that cannot be read is a SIGBUS
				}
			}
			truncate := []int{0, os.O_TRUNC}[w.rng.IntN(2)]
			f, err := os.OpenFile(source, os.O_WRONLY|os.O_CREATE|truncate, 0o644)
			w.check(err, "open %s", source)
			_, err = f.Write(data)
			w.check(err, "write %s", source)
			w.check(f.Close(), "close %s", source)
			return
		case 2: // in its place
			w.check(os.WriteFile(source+".new", data, 0o644), "write %s.new", source)
			w.check(os.Rename(source+".new", source), "rename %s.new", source)
		case 3: // after it
			w.check(os.Remove(source), "unlink %s", source)
			w.check(os.WriteFile(source, data, 0o644), "write %s", source)
		case 4: // and after its directory
			w.check(os.RemoveAll(dir), "rm -r %s", dir)
			w.check(os.MkdirAll(dir, 0o755), "mkdir %s", dir)
			w.check(os.WriteFile(source, data, 0o644), "write %s", source)
		}
		at++
	}
	w.check(os.WriteFile(source, npz(1, size), 0o644), "write %s", source)
	return func() {
		seed := w.rng.Uint64()
		change(seed)
		for _, name := range views {
			h := &viewHeld{name: name, fd: w.viewOpened(name), source: at}
			var st unix.Stat_t
			w.check(unix.Fstat(h.fd, &st), "fstat %s", name)
			h.want = make([]byte, st.Size)
			n, err := unix.Pread(h.fd, h.want, 0)
			w.check(err, "read %s", name)
			w.want(n == len(h.want) && bytes.HasSuffix(h.want, mounttest.Noise(seed, size)),
				"%s, %d of %d bytes, is not of its source", name, n, st.Size)
			h.mapped, err = unix.Mmap(h.fd, 0, n, unix.PROT_READ, unix.MAP_SHARED)
			w.check(err, "mmap %s", name)
			held = append(held, h)
		}
		for _, h := range held {
			h.look(w)
		}
		for len(held) > 8 {
			i := w.rng.IntN(len(held))
			h := held[i]
			if !h.over {
				w.check(unix.Munmap(h.mapped), "munmap")
			}
			w.check(unix.Close(h.fd), "close %s", h.name)
			held = append(held[:i], held[i+1:]...)
		}
	}
}

// viewOpened opens a view, once the kernel has told that nobody writes the source any more.
func (w *worker) viewOpened(name string) int {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != unix.ENOENT || time.Now().After(end) {
			w.check(err, "open %s", name)
			return fd
		}
	}
}

// look compares a view.
func (h *viewHeld) look(w *worker) {
	what := fmt.Sprintf("%s, whose source was written over (%v) or is another", h.name, h.over)
	got := make([]byte, len(h.want))
	n, err := unix.Pread(h.fd, got, 0)
	if err == unix.ESTALE && h.over {
		n, err = 0, nil
	}
	w.check(err, "read %s", what)
	w.want(bytes.Equal(got[:n], h.want[:n]) && (h.over || n == len(got)), "%s: %s", what,
		mounttest.Difference(h.want, got[:n]))
	if !h.over {
		w.want(bytes.Equal(h.mapped, h.want), "%s, by its mapping: %s", what,
			mounttest.Difference(h.want, h.mapped))
	}
	var st unix.Stat_t
	w.check(unix.Fstat(h.fd, &st), "fstat %s", what)
	w.want(st.Size == int64(len(h.want)), "%s has %d bytes", what, st.Size)
}
