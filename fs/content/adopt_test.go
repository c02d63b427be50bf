package content

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
)

func TestAdopt(t *testing.T) {
	r := newRig(t)
	data := random(300<<10, 1)
	r.write("from", data)
	r.packOut("from")
	of := r.state("from").Record.Manifest
	if err := Adopt(r.file("to"), of, 12345); err != nil {
		t.Fatal(err)
	}
	r.want("to", "packed")
	r.same("to", data)
	if rec := r.state("to").Record; rec.Manifest != of || rec.Mtime != 12345 {
		t.Errorf("record %+v", rec)
	}
	r.forget()
	r.same("to", data)
	if err := Adopt(r.file("to"), of, 0); !errors.Is(err, unix.EEXIST) {
		t.Errorf("twice: %v", err)
	}
	if err := Adopt(r.file("none"), cas.Hash{1}, 0); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("a manifest that is not there: %v", err)
	}
	r.want("none", "plain")
	r.same("none", nil)
}

// A kill in the middle leaves an empty file, or all of it.
func TestAdoptCutOff(t *testing.T) {
	for _, at := range []string{"adopt: record", "adopt: size", "hollow: punch", "hollow: mtime"} {
		r := newRig(t)
		data := random(300<<10, 1)
		r.write("from", data)
		r.packOut("from")
		of := r.state("from").Record.Manifest
		r.write("to", nil)
		killed := errors.New("killed")
		r.Step = func(what string) error {
			if what == at {
				return killed
			}
			return nil
		}
		_ = Adopt(r.file("to"), of, 0)
		r.Step = func(string) error { return nil }
		r.forget()
		want := data
		if at == "adopt: record" {
			want = nil
		} else if f := r.file("to"); true { // as the start does of what was cut off
			f.Lock()
			if err := f.LoadLocked(); err != nil {
				t.Fatal(err)
			}
			if err := f.DisbelieveLocked(); err != nil {
				t.Fatal(err)
			}
			f.Unlock()
		}
		r.same("to", want)
	}
}
