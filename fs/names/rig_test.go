package names

import (
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/fs/content"
	"ckptfs/fs/tree"
)

// rig is the names of a temporary folder, without a store: no file of it is ever packed. Paths are relative
// to the tree. A test gives back every node that it finds; see end.
type rig struct {
	t rapid.TB
	*Names
	dir  string // the store's folder
	me   tree.Caller
	kept []*Node // end gives them back

	mu       sync.Mutex
	lines    []string       // that were reported
	changes  map[uint64]int // what Changed was told
	onChange func()         // called by Changed
}

// newRig opens an empty tree. The test ends with end.
func newRig(t *testing.T, set ...func(*Options)) *rig {
	t.Helper()
	r := openRig(t, t.TempDir(), set...)
	t.Cleanup(r.end)
	return r
}

// readOnly is an option of a rig.
func readOnly(o *Options) { o.ReadOnly = true }

// openRig opens the tree in a store's folder, which is made if it is not there.
func openRig(t rapid.TB, dir string, set ...func(*Options)) *rig {
	t.Helper()
	r := &rig{
		t: t, dir: dir, changes: map[uint64]int{},
		me: tree.Caller{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())},
	}
	if err := os.MkdirAll(r.at(""), 0o700); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Dir: dir, Tree: r.at(""), Changed: r.changed, Recorded: func(uint64) {}, Report: r.report,
		Reserved: func(dir *Node, name string) bool { return dir == r.root && name == "reserved" },
	}
	for _, f := range set {
		f(&o)
	}
	o.Files = content.New(content.Parts{
		ID: [16]byte{7}, ReadOnly: o.ReadOnly, Epoch: func() uint32 { return 1 }, Now: time.Now,
		Report: r.report, Events: events{},
	})
	ns, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Names = ns
	return r
}

// end closes the tree, and fails unless everything was given back: the root alone is known, and nothing in
// the store's folder is open.
func (r *rig) end() {
	r.t.Helper()
	for _, n := range r.kept {
		n.Unpin()
	}
	r.onlyRoot()
	r.Close()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.HasPrefix(to, r.dir+"/") {
			r.t.Errorf("left open: %s", to)
		}
	}
	if r.t.Failed() && len(r.lines) > 0 {
		r.t.Logf("reported:\n%s", strings.Join(r.lines, ""))
	}
}

// onlyRoot fails unless the table holds the root alone, and no directory but it is open.
func (r *rig) onlyRoot() {
	r.t.Helper()
	if left, open := r.Leftover(); len(left) > 0 || open > 0 {
		r.t.Errorf("left in the table: %q; %d directories open", left, open)
	}
	if n := r.root.Refs(); n != 1 {
		r.t.Errorf("the root has %d references", n)
	}
	if k := len(r.tab.synthetic); k > 0 {
		r.t.Errorf("%d synthetic names are left", k)
	}
	if r.moves != nil {
		r.t.Error("moves are still written down")
	}
}

func (r *rig) report(level slog.Level, msg string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprint(level, " ", msg, " ", fmt.Sprintln(args...)))
}

func (r *rig) changed(ino uint64) {
	r.mu.Lock()
	r.changes[ino]++
	do := r.onChange
	r.mu.Unlock()
	if do != nil {
		do()
	}
}

// at is where a path of the tree lies on the host.
func (r *rig) at(p string) string { return filepath.Join(r.dir, "tree", p) }

// find is the node of a path, with a reference.
func (r *rig) find(p string) *Node {
	r.t.Helper()
	n, err := r.Resolve(p)
	if err != nil {
		r.t.Fatalf("look up %s: %v", p, err)
	}
	return n
}

// keep has a node known until end.
func (r *rig) keep(p string) *Node {
	n := r.find(p)
	r.kept = append(r.kept, n)
	return n
}

// known is the node of a path that something else refers to.
func (r *rig) known(p string) *Node {
	r.t.Helper()
	n := r.find(p)
	n.Unpin()
	return n
}

// in calls do with the directory of a path and the name in it.
func (r *rig) in(p string, do func(dir *Node, name string) error) error {
	r.t.Helper()
	dir, name := path.Split(p)
	n, err := r.Resolve(dir)
	if err != nil {
		return err
	}
	defer n.Unpin()
	return do(n, name)
}

// must fails on an error.
func (r *rig) must(what string, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

// want fails unless err is the wanted one.
func (r *rig) want(what string, err, want error) {
	r.t.Helper()
	if err != want {
		r.t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// make makes a file that nobody has open, and returns its node with a reference.
func (r *rig) make(p string) (n *Node, err error) {
	r.t.Helper()
	return n, r.in(p, func(dir *Node, name string) error {
		m, err := r.MakeFile(dir, name, 0o644, unix.O_WRONLY, r.me)
		if err == nil {
			m.Close()
			n = m.Node
		}
		return err
	})
}

// write makes files whose bytes are their names.
func (r *rig) write(paths ...string) {
	r.t.Helper()
	for _, p := range paths {
		n, err := r.make(p)
		r.must("make "+p, err)
		n.Unpin()
		r.must("write "+p, os.WriteFile(r.at(p), []byte(p), 0))
	}
}

// read is the bytes of a node.
func (r *rig) read(n *Node) string {
	r.t.Helper()
	f, err := n.Open(unix.O_RDONLY)
	r.must("open", err)
	defer f.Close()
	var b [100]byte
	k, _ := f.Read(b[:])
	return string(b[:k])
}

// same fails unless p has these bytes.
func (r *rig) same(p, want string) {
	r.t.Helper()
	n := r.find(p)
	defer n.Unpin()
	if got := r.read(n); got != want {
		r.t.Errorf("%s: %q, want %q", p, got, want)
	}
}

// gone fails if a name is there.
func (r *rig) gone(p string) {
	r.t.Helper()
	if n, err := r.Resolve(p); err == nil {
		n.Unpin()
		r.t.Errorf("%s is there", p)
	}
}

// mkdir makes directories, and those above them.
func (r *rig) mkdir(paths ...string) {
	r.t.Helper()
	for _, p := range paths {
		for i := range len(p) + 1 {
			if i < len(p) && p[i] != '/' {
				continue
			}
			if err := r.tryMkdir(p[:i]); err != unix.EEXIST {
				r.must("mkdir "+p[:i], err)
			}
		}
	}
}

func (r *rig) tryMkdir(p string) error {
	return r.in(p, func(dir *Node, name string) error {
		mode := uint32(0o755)
		n, _, err := r.Make(dir, name, r.me, &mode, func(fd int) error {
			return unix.Mkdirat(fd, name, 0o700)
		})
		if err == nil {
			n.Unpin()
		}
		return err
	})
}

// symlink makes a symbolic link and returns its node with a reference.
func (r *rig) symlink(p, target string) (n *Node) {
	r.t.Helper()
	r.must("symlink "+p, r.in(p, func(dir *Node, name string) (err error) {
		n, _, err = r.Make(dir, name, r.me, nil, func(fd int) error {
			return unix.Symlinkat(target, fd, name)
		})
		return err
	}))
	return n
}

// unlink removes a name that is no directory's.
func (r *rig) unlink(p string) error { return r.remove(p, 0) }

func (r *rig) rmdir(p string) error { return r.remove(p, unix.AT_REMOVEDIR) }

func (r *rig) remove(p string, flag int) error {
	return r.in(p, func(dir *Node, name string) error {
		v, err := r.Remove(dir, name, flag)
		v.Spare()
		return err
	})
}

func (r *rig) rename(from, to string, flags uint32) error {
	return r.in(from, func(fd *Node, fn string) error {
		return r.in(to, func(td *Node, tn string) error {
			v, moved, err := r.Rename(fd, fn, td, tn, flags)
			v.Spare()
			if moved != nil {
				moved.Unpin()
			}
			return err
		})
	})
}

func (r *rig) link(from, to string) error {
	n, err := r.Resolve(from)
	if err != nil {
		return err
	}
	defer n.Unpin()
	return r.linkNode(n, to)
}

func (r *rig) linkNode(n *Node, to string) error {
	return r.in(to, func(dir *Node, name string) error {
		_, err := r.Link(n, dir, name)
		if err == nil {
			n.Unpin()
		}
		return err
	})
}

// listing is the names in a directory but "." and "..".
func (r *rig) listing(p string) (out []string) {
	r.t.Helper()
	n := r.find(p)
	defer n.Unpin()
	l, err := n.List()
	r.must("list "+p, err)
	for _, e := range l {
		if e.Name != "." && e.Name != ".." {
			out = append(out, e.Name)
		}
	}
	return out
}

// events wants to know of nothing.
type events struct{}

func (events) Writing(*content.File)            {}
func (events) Written(*content.File, bool)      {}
func (events) Dirty(*content.File)              {}
func (events) Plain(*content.File)              {}
func (events) Packed(*content.File)             {}
func (events) Unpacked(*content.File, cas.Hash) {}
func (events) Resident(*content.File, int64)    {}
func (events) Opened(*content.File, int)        {}
func (events) Closed(*content.File, int64)      {}
func (events) Idle(*content.File)               {}
func (events) Lost(*content.File, error)        {}
func (events) Unsummed(*content.File)           {}
func (events) Unsynced(*content.File)           {}
