package volume

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Two checkpoints that would have a view of one name: the first kind is shown, and unlink means the name, not
// the kind.
func TestViewOfTwo(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs/a")
	r.write("runs/a/m.bin", fixture(t, "tied.pt"))
	r.write("runs/a/m.npz", sample(t, "numpy/several.npz"))
	r.write("runs/a/m.pt", fixture(t, "flat.pt"))
	r.same("runs/a/m.safetensors", viewBytes(t, fixture(t, "flat.pt")))
	if got := r.listing("runs/a"); len(got) != 4 {
		t.Errorf("names: %v", got)
	}
	r.unlink("runs/a/m.safetensors")
	if r.exists("runs/a/m.safetensors") {
		t.Error("another view stands in its place")
	}
}

// A view that is unlinked beside one of a file's names stays beside the others: `cp -al A B; rm -r B` leaves
// A as it was.
func TestViewOfLinks(t *testing.T) {
	for _, state := range []string{resident, both, packed} {
		t.Run(state, func(t *testing.T) {
			r := newRig(t)
			src := fixture(t, "flat.pt")
			if state == resident {
				r.withoutPacking()
			}
			r.mkdir("runs/a")
			r.mkdir("runs/b")
			r.write("runs/a/m.pt", src)
			r.link("runs/a/m.pt", "runs/b/m.pt")
			if state != resident {
				r.bring("runs/a/m.pt", state)
			}
			stays := func() {
				t.Helper()
				r.same("runs/a/m.safetensors", viewBytes(t, src))
				if got := r.listing("runs/a"); !slices.Equal(got, []string{"m.safetensors", "m.pt"}) {
					t.Errorf("names: %v", got)
				}
			}
			for range 2 {
				if got := r.listing("runs/b"); !slices.Equal(got, []string{"m.safetensors", "m.pt"}) {
					t.Errorf("names: %v", got)
				}
				r.unlink("runs/b/m.safetensors")
				dir := r.find("runs/b")
				wantErr(t, "a second unlink", r.Unlink(dir, "m.safetensors"), unix.ENOENT)
				r.forget(dir)
				if got := r.listing("runs/b"); !slices.Equal(got, []string{"m.pt"}) || r.exists("runs/b/m.safetensors") {
					t.Errorf("names: %v", got)
				}
				stays()
				r.unlink("runs/b/m.pt")
				stays()
				r.link("runs/a/m.pt", "runs/b/m.pt") // a new name, with its view
			}
			r.unlink("runs/b/m.safetensors")
			r.rename("runs/b", "runs/c")
			if r.exists("runs/c/m.safetensors") {
				t.Error("it came back")
			}
			r.rename("runs/c/m.pt", "runs/c/n.pt")
			r.same("runs/c/n.safetensors", viewBytes(t, src))
			r.unlink("runs/c/n.safetensors")
			r.unlink("runs/c/n.pt")
			dir := r.find("runs")
			if err := r.Rmdir(dir, "c"); err != nil {
				t.Error(err)
			}
			r.forget(dir)
			stays()
			r.unlink("runs/a/m.safetensors") // the only name is the inode's
			r = r.reopen()
			if r.exists("runs/a/m.safetensors") {
				t.Error("it came back")
			}
			r.unlink("runs/a/m.pt")
			if state != resident {
				r.onlyRoot()
			}
		})
	}
}
