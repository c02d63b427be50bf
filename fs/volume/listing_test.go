package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/control"
)

// bytesOf reads a file by its stretches, and says how many there are.
func (r *rig) bytesOf(p string) (all []byte, stretches int) {
	r.t.Helper()
	for off := int64(0); ; {
		s, err := r.Bytes(r.test.Context(), p, off)
		if err != nil {
			r.t.Fatal(err)
		}
		b, err := io.ReadAll(s)
		if cerr := s.Close(); err != nil || cerr != nil || int64(len(b)) != s.Size {
			r.t.Fatalf("%s: %d bytes of %d: %v, %v", p, len(b), s.Size, err, cerr)
		}
		all = append(all, make([]byte, s.Off-int64(len(all)))...)
		if len(b) == 0 {
			return all, stretches
		}
		all, off = append(all, b...), s.Off+s.Size
		stretches++
	}
}

func TestListing(t *testing.T) {
	r := newRig(t)
	model, err := os.ReadFile("../../formats/testdata/same/model.pt")
	if err != nil {
		t.Fatal(err)
	}
	r.mkdir("runs/a/1")
	r.write("runs/a/1/model.pt", model)
	r.write("runs/a/1/packed.pt", model)
	r.symlink("model.pt", "runs/a/1/link")
	r.pack("runs/a/1/packed.pt")
	if _, err := r.Evict(t.Context(), "runs/a/1/packed.pt", nil); err != nil {
		t.Fatal(err)
	}
	r.write("runs/a/1/bad\xff", nil)
	for i := range 2 * entriesAtOnce {
		r.write(fmt.Sprintf("runs/a/1/small%04d", i), []byte("x"))
	}
	var got []string
	err = r.Requests.Entries(t.Context(), "runs/a/1", func(some []control.Entry) error {
		for _, e := range some {
			got = append(got, fmt.Sprintf("%s %s %v %s", e.Name, e.State, e.View, e.Target))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"bad\xff plain false ", "link  false model.pt", "model.pt resident false ",
		"model.safetensors  true ", "packed.pt packed false ", "packed.safetensors  true "}
	if !slices.Equal(got[:min(len(want), len(got))], want) || len(got) != len(want)+2*entriesAtOnce ||
		!slices.IsSorted(got) {
		t.Errorf("%d entries: %q", len(got), got[:min(8, len(got))])
	}

	view := r.read("runs/a/1/packed.safetensors")
	if b, _ := r.bytesOf("runs/a/1/packed.safetensors"); !bytes.Equal(b, view) {
		t.Errorf("%d bytes of a view, not %d", len(b), len(view))
	}
	e, err := r.Entry(t.Context(), "runs/a/1/packed.safetensors")
	if err != nil || !e.View || e.Size != int64(len(view)) || e.Mode&unix.S_IFMT != unix.S_IFREG {
		t.Errorf("%+v, %v", e, err)
	}
	if b, n := r.bytesOf("runs/a/1/packed.pt"); !bytes.Equal(b, model) || n != 1 {
		t.Errorf("%d bytes in %d stretches", len(b), n)
	}
	r.want("runs/a/1/packed.pt", packed) // it is read as check does, not as a program
	if e, err := r.Entry(t.Context(), ""); err != nil || e.Mode&unix.S_IFMT != unix.S_IFDIR {
		t.Errorf("the root: %+v, %v", e, err)
	}
	for _, tc := range []struct {
		p    string
		want error
	}{{"gone", fs.ErrNotExist}, {"runs/a/1/model.pt/x", unix.ENOTDIR}, {"runs", unix.EISDIR}} {
		if _, err := r.Bytes(t.Context(), tc.p, 0); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, not %v", tc.p, err, tc.want)
		}
	}
	if err := r.Requests.Entries(t.Context(), "runs/a/1/model.pt", nil); !errors.Is(err, unix.ENOTDIR) {
		t.Error(err)
	}
}

// What lies between holes is sent, and nothing else.
func TestListingHoles(t *testing.T) {
	r := newRig(t)
	want := make([]byte, 9<<20)
	h := r.open("f", unix.O_WRONLY|unix.O_CREAT)
	for _, off := range []int64{1 << 20, 5 << 20} {
		data := bytes.Repeat([]byte("x"), 1<<20)
		copy(want[off:], data)
		r.writeAt(h, data, off)
	}
	size := int64(len(want))
	r.release(h)
	r.truncate("f", size)
	got, n := r.bytesOf("f")
	got = append(got, make([]byte, size-int64(len(got)))...)
	if !bytes.Equal(got, want) || n != 2 {
		t.Errorf("%d bytes in %d stretches", len(got), n)
	}
	if s, err := r.Bytes(t.Context(), "f", size+1); err != nil || s.Off != size || s.Size != 0 {
		t.Errorf("behind the end: %+v, %v", s, err)
	} else {
		s.Close()
	}
}

// A read that fails is reported with what it struck, and ends the stretch early.
func TestListingDamaged(t *testing.T) {
	r := newRig(t)
	data := random(600<<10, 1)
	model := weights(t, []string{"w"}, data)
	r.write("f", model)
	r.packOut("f")
	r.damage(cas.Sum(data[256<<10 : 512<<10]))
	s, err := r.Bytes(t.Context(), "f", 0)
	if err == nil {
		_, err = io.Copy(io.Discard, s)
		s.Close()
	}
	if err == nil || !r.log.has("read failed", "path f") {
		t.Errorf("%v: %s", err, r.log)
	}
}
