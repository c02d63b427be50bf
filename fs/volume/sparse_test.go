package volume

import (
	"bytes"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	bound "ckptfs/formats/fixture"
	"ckptfs/formats/npy"
	"ckptfs/fs/tree"
)

// A file of a terabyte with nothing in it delays no other.
func TestMostlyHoles(t *testing.T) {
	r := newRig(t)
	r.write("tera", random(100<<10, 1))
	n := r.find("tera")
	defer r.forget(n)
	size := int64(1) << 40
	if _, err := r.Setattr(n, &tree.SetAttr{Size: &size}); err != nil {
		if err == unix.EFBIG {
			t.Skip("the disk has no such files")
		}
		t.Fatal(err)
	}
	r.sync()
	if got := stateOf(n); got != resident {
		t.Errorf("it is %s", got)
	}
}

// A view of 100 GB, and one of its tensors, are made from a header: opening them and reading their ends takes
// no memory for what lies between, in the order of the file or across it.
func TestViewOfHundredGigabytes(t *testing.T) {
	const rows, columns = 25 << 20, 1 << 10 // of 4 bytes
	for name, order := range map[string]string{"rows": "False", "columns": "True"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.mkdir("runs")
			head, err := npy.AppendHeader(nil,
				&formats.Tensor{DType: formats.F32, Shape: []int64{rows, columns}})
			if err != nil {
				t.Fatal(err)
			}
			if order == "True" {
				head = bytes.Replace(head, []byte("False, "), []byte("True,  "), 1)
			}
			r.write("runs/huge.npy", head)
			n := r.find("runs/huge.npy")
			defer r.forget(n)
			size := int64(len(head)) + rows*columns*4
			if _, err := r.Setattr(n, &tree.SetAttr{Size: &size}); err == unix.EFBIG {
				t.Skip("the disk has no such files")
			} else if err != nil {
				t.Fatal(err)
			}
			r.sync()
			w := r.open("runs/huge.npy", unix.O_WRONLY)
			r.writeAt(w, []byte("last"), size-4)
			r.release(w)
			r.sync()
			bound.Within(t, bound.Bound{Fixed: 16 << 20}, 0, func() {
				for _, p := range []string{"runs/huge.safetensors", tensors + "runs/huge.npy/arr_0.npy"} {
					h := r.open(p, unix.O_RDONLY)
					end := h.Node.Synth().Size()
					buf := make([]byte, 8)
					if k, err := h.Read(buf, end-8); k != 8 || err != nil || string(buf[4:]) != "last" {
						t.Errorf("%s: %q, %v", p, buf[:k], err)
					}
					r.release(h)
				}
			})
		})
	}
}

// What a view has read ahead of a strided tensor goes with its last user, also if other handles read the
// source.
func TestClosedViewHoldsNoBlocks(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs")
	head, err := npy.AppendHeader(nil, &formats.Tensor{DType: formats.F32, Shape: []int64{8 << 10, 4 << 10}})
	if err != nil {
		t.Fatal(err)
	}
	r.write("runs/t.npy", bytes.Replace(head, []byte("False, "), []byte("True,  "), 1))
	src := r.find("runs/t.npy")
	defer r.forget(src)
	size := int64(len(head)) + 128<<20
	if _, err := r.Setattr(src, &tree.SetAttr{Size: &size}); err != nil {
		t.Fatal(err)
	}
	r.sync()
	n := r.find("runs/t.safetensors")
	defer r.forget(n)
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // pools are emptied in two
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	h := r.open("runs/t.safetensors", unix.O_RDONLY)
	buf := make([]byte, 128<<10)
	for off := int64(1 << 10); off < 16<<20; off += int64(len(buf)) {
		if _, err := h.Read(buf, off); err != nil {
			t.Fatal(err)
		}
	}
	_, _, done, err := openNode(src)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	held := heap()
	r.release(h)
	if freed := held - heap(); freed < 4<<20 { // half of a block
		t.Errorf("closing the view frees %d bytes", freed)
	}
}
