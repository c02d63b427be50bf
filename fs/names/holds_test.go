package names

import (
	"os"
	"path"
	"testing"

	"golang.org/x/sys/unix"
)

// A folder that was made here has the marks of all names that came into it, by whatever call; nothing is
// known of another.
func TestMayHold(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Mark = func(name string) uint32 {
			return map[string]uint32{".a": 1, ".b": 2, ".c": 4, ".d": 8, ".e": 16}[path.Ext(name)]
		}
	})
	mode := uint32(0o700)
	mkdir := func(fd int) error { return unix.Mkdirat(fd, "made", mode) }
	d, _, err := r.Make(r.Root(), "made", r.me, &mode, mkdir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Unpin()
	may := func(want uint32) {
		t.Helper()
		for i := range 6 {
			if got := d.MayHold(1 << i); got != (want>>i&1 == 1) {
				t.Errorf("mark %d: %v, with %b", i, got, want)
			}
		}
	}
	may(0)
	r.write("made/f.a", "made/f")
	may(1)
	r.write("x")
	x := r.find("x")
	if _, err := r.Link(x, d, "l.b"); err != nil {
		t.Fatal(err)
	}
	x.Unpin()
	x.Unpin()
	may(3)
	r.must("rename", r.rename("x", "made/n.c", 0))
	may(7)
	n, _, err := r.Make(d, "s.d", r.me, nil, func(fd int) error { return unix.Symlinkat("to", fd, "s.d") })
	if err != nil {
		t.Fatal(err)
	}
	n.Unpin()
	may(15)

	if err := os.Mkdir(r.at("found"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := r.find("found")
	defer f.Unpin()
	if !f.MayHold(1) || !r.Root().MayHold(1) {
		t.Error("what a folder has that was found is not known")
	}
}
