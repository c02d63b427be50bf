package volume

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A file of a terabyte with nothing in it holds nobody up.
func TestMostlyHoles(t *testing.T) {
	r := newRig(t)
	r.write("tera", random(100<<10, 1))
	n := r.find("tera")
	defer r.forget(n)
	size := int64(1) << 40
	if _, err := r.Setattr(n, &SetAttr{Size: &size}); err != nil {
		if err == unix.EFBIG {
			t.Skip("the disk has no such files")
		}
		t.Fatal(err)
	}
	r.sync()
	if n.file.rec.Packed() {
		t.Error("it was packed")
	}
}
