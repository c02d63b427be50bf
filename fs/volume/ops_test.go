package volume

import (
	"bytes"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// The rest of rig: what programs do, by paths.

func (r *rig) forget(n *names.Node) {
	if n != r.names.Root() {
		r.names.Forget(n.ID(), 1)
	}
}

// lookup finds a path; the caller forgets the node.
func (r *rig) lookup(p string) (*names.Node, tree.Attr, error) {
	n := r.names.Root()
	a, err := r.Stat(n)
	for name := range strings.SplitSeq(p, "/") {
		if name == "" || err != nil {
			continue
		}
		var next *names.Node
		next, a, err = r.Lookup(n, name)
		r.forget(n)
		n = next
	}
	return n, a, err
}

func (r *rig) find(p string) *names.Node {
	r.t.Helper()
	n, _, err := r.lookup(p)
	if err != nil {
		r.t.Fatalf("look up %s: %v", p, err)
	}
	return n
}

// dirOf finds the directory of a path and the name in it; the caller forgets the directory.
func (r *rig) dirOf(p string) (*names.Node, string) {
	r.t.Helper()
	dir, name := path.Split(p)
	return r.find(dir), name
}

func (r *rig) stat(p string) tree.Attr {
	r.t.Helper()
	n, a, err := r.lookup(p)
	if err != nil {
		r.t.Fatalf("stat %s: %v", p, err)
	}
	r.forget(n)
	return a
}

func (r *rig) exists(p string) bool {
	n, _, err := r.lookup(p)
	if err == nil {
		r.forget(n)
	}
	return err == nil
}

func (r *rig) mkdir(p string) {
	r.t.Helper()
	dir := r.names.Root()
	for name := range strings.SplitSeq(p, "/") {
		n, _, err := r.Mkdir(dir, name, 0o755, r.me)
		if err == unix.EEXIST {
			n, _, err = r.Lookup(dir, name)
		}
		if err != nil {
			r.t.Fatalf("mkdir %s: %v", p, err)
		}
		r.forget(dir)
		dir = n
	}
	r.forget(dir)
}

// openFile is one try of open(2); the handle holds the node.
func (r *rig) openFile(p string, flags uint32) (*Handle, error) {
	r.t.Helper()
	dir, name := r.dirOf(p)
	defer r.forget(dir)
	n, _, err := r.Lookup(dir, name)
	if err == unix.ENOENT && flags&unix.O_CREAT != 0 {
		n, _, h, err := r.Create(dir, name, 0o644, flags, r.me)
		if err == nil {
			r.forget(n)
		}
		return h, err
	}
	if err != nil {
		return nil, err
	}
	defer r.forget(n)
	return r.Open(n, flags)
}

// open is openFile. As the kernel does, it looks the name up again, once, after ESTALE.
func (r *rig) open(p string, flags uint32) *Handle {
	r.t.Helper()
	h, err := r.openFile(p, flags)
	if err == unix.ESTALE {
		h, err = r.openFile(p, flags)
	}
	if err != nil {
		r.t.Fatalf("open %s: %v", p, err)
	}
	return h
}

func (r *rig) writeAt(h *Handle, data []byte, off int64) {
	r.t.Helper()
	const request = 1 << 20
	for len(data) > 0 {
		n, err := h.Write(data[:min(request, len(data))], off)
		if err != nil {
			r.t.Fatalf("write at %d: %v", off, err)
		}
		data, off = data[n:], off+int64(n)
	}
}

// alive says that the caller of close(2) is not ending by a signal; dying, that it is.
func alive() bool { return false }
func dying() bool { return true }

func (r *rig) release(h *Handle) {
	r.Flush(h, alive)
	h.Release()
}

// write makes p a file of these bytes.
func (r *rig) write(p string, data []byte) {
	r.t.Helper()
	h := r.open(p, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	r.writeAt(h, data, 0)
	r.release(h)
}

// patch writes into an existing file.
func (r *rig) patch(p string, data []byte, off int64) {
	r.t.Helper()
	h := r.open(p, unix.O_RDWR)
	r.writeAt(h, data, off)
	r.release(h)
}

// readHandle reads to the end, in requests of an odd length.
func (r *rig) readHandle(h *Handle) ([]byte, error) {
	var out []byte
	buf := make([]byte, 256<<10+1000)
	for {
		n, err := h.Read(buf, int64(len(out)))
		if n == 0 || err != nil {
			return out, err
		}
		out = append(out, buf[:n]...)
	}
}

func (r *rig) tryRead(p string) ([]byte, error) {
	r.t.Helper()
	h, err := r.openFile(p, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer r.release(h)
	return r.readHandle(h)
}

func (r *rig) read(p string) []byte {
	r.t.Helper()
	got, err := r.tryRead(p)
	if err != nil {
		r.t.Fatalf("read %s: %v", p, err)
	}
	return got
}

// same fails unless p has these bytes and stat says so too.
func (r *rig) same(p string, want []byte) {
	r.t.Helper()
	if a := r.stat(p); a.Size != int64(len(want)) {
		r.t.Errorf("%s: size %d, want %d (%s)", p, a.Size, len(want), r.state(p))
	}
	r.equal(p, r.read(p), want)
}

func (r *rig) equal(what string, got, want []byte) {
	r.t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	r.t.Errorf("%s: %d bytes, want %d; the first difference is at %d", what, len(got), len(want), i)
}

// known has a name be known until forget, as the kernel does before it asks for a change of the name.
func (r *rig) known(p string) (forget func()) {
	n, _, err := r.lookup(p)
	if err != nil {
		return func() {}
	}
	return func() { r.forget(n) }
}

func (r *rig) unlink(p string) {
	r.t.Helper()
	defer r.known(p)()
	dir, name := r.dirOf(p)
	defer r.forget(dir)
	if err := r.Unlink(dir, name); err != nil {
		r.t.Fatalf("unlink %s: %v", p, err)
	}
}

func (r *rig) tryRename(from, to string, flags uint32) error {
	r.t.Helper()
	defer r.known(from)()
	defer r.known(to)()
	fd, fn := r.dirOf(from)
	defer r.forget(fd)
	td, tn := r.dirOf(to)
	defer r.forget(td)
	return r.Rename(fd, fn, td, tn, flags)
}

func (r *rig) rename(from, to string) {
	r.t.Helper()
	if err := r.tryRename(from, to, 0); err != nil {
		r.t.Fatalf("rename %s to %s: %v", from, to, err)
	}
}

func (r *rig) link(from, to string) {
	r.t.Helper()
	n := r.find(from)
	defer r.forget(n)
	dir, name := r.dirOf(to)
	defer r.forget(dir)
	if _, err := r.Link(n, dir, name); err != nil {
		r.t.Fatalf("link %s to %s: %v", from, to, err)
	}
	r.forget(n)
}

// listing lists a directory, without "." and "..".
func (r *rig) listing(p string) []string {
	r.t.Helper()
	n := r.find(p)
	defer r.forget(n)
	d, err := r.OpenDir(n)
	if err != nil {
		r.t.Fatalf("open directory %s: %v", p, err)
	}
	defer d.Release()
	entries, err := r.Entries(d, 0)
	if err != nil {
		r.t.Fatalf("list %s: %v", p, err)
	}
	var out []string
	for _, e := range entries {
		if e.Name != "." && e.Name != ".." {
			out = append(out, e.Name)
		}
	}
	return out
}

// rawPath is where p's inode lies.
func (r *rig) rawPath(p string) string { return r.at("tree", p) }

// hollow fails if the bytes of p take room on the disk.
func (r *rig) hollow(p string) {
	r.t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(r.rawPath(p), &st); err != nil {
		r.t.Fatal(err)
	}
	if st.Blocks*512 > 64<<10 {
		r.t.Errorf("%s takes %d blocks", p, st.Blocks)
	}
}
