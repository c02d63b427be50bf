package volume

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// A store that was copied is not believed to be what it was until a check has read all of it where it lies
// now.
func TestHomeOfACopy(t *testing.T) {
	slower := func(r *rig) bool {
		s, err := r.Status(t.Context())
		if err != nil || s.ComparesBLAKE3 != r.log.has("reads compare BLAKE3") {
			t.Errorf("status says %+v, %v; the log: %s", s, err, r.log)
		}
		return s.ComparesBLAKE3
	}
	data := random(600<<10, 3)
	r := newRig(t)
	r.write("f.bin", data)
	r.packOut("f.bin")
	if r = r.reopen(); slower(r) {
		t.Error("a store that was made here is not at home")
	}
	r.close()
	copied := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-a", r.dir, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r = openRig(t, copied)
	r.same("f.bin", data)
	if !slower(r) {
		t.Error("a copy is at home")
	}
	if r = r.reopen(); !slower(r) {
		t.Error("a copy that was not checked is at home")
	}
	if c := r.check(); c.Damaged > 0 {
		t.Fatalf("%+v", c.Problems)
	}
	if s, err := r.Status(t.Context()); err != nil || s.ComparesBLAKE3 {
		t.Errorf("a copy that was just checked is not at home: %+v, %v", s, err)
	}
	if r = r.reopen(); slower(r) {
		t.Error("a copy that was checked is not at home")
	}
	r.same("f.bin", data)
}
