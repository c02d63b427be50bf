package volume

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"testing"

	"ckptfs/fs/steps"
)

// TestUnrelated: what models have in common that have nothing to do with each other makes none the parent of
// the other.
func TestUnrelated(t *testing.T) {
	r := newRig(t)
	const size = 70 << 10
	ones, zeros, mask := bytes.Repeat([]byte{1}, 2*size), make([]byte, size), make([]byte, size)
	for i := range mask {
		mask[i] = byte(i / 3 % 2)
	}
	names := []string{"0.ones", "1.zeros", "2.mask", "3.num_batches_tracked", "4.weight"}
	like := func(c byte) []byte {
		return weights(t, names, ones, zeros, mask, []byte{7, 0, 0, 0, 0, 0, 0, 0}, random(size, uint64(c)))
	}
	put := func(p string, b []byte) {
		t.Helper()
		dir := path.Dir(p)
		r.mkdir(dir)
		r.write(p, b)
	}
	for i, c := range []byte("AB") {
		put(fmt.Sprintf("runs/norm%d/1/m.safetensors", i), like(c))
		r.sync()
		r.wantChain(fmt.Sprintf("runs/norm%d/1", i), fmt.Sprintf("norm%d/1 none 5", i))
	}
	// The files of a step: shards that share a tensor, and what is saved beside them.
	for _, name := range []string{"m-1.safetensors", "m-2.safetensors", "optimizer.safetensors"} {
		put("runs/set/1/"+name, weights(t, []string{"shared", "w"}, random(size, 'S'),
			random(1000, uint64(len(name))+uint64(name[2]))))
	}
	r.sync()
	l, err := r.Lineage(context.Background(), "runs/set/1")
	if err != nil || len(l.Models) != 3 {
		t.Fatalf("%+v, %v", l, err)
	}
	for _, m := range l.Models {
		if m.Parent != 0 {
			t.Errorf("%s comes from %d, %s", m.Path, m.Parent, m.How)
		}
	}
	// What is small is nothing to go by, however much of the file it is.
	for i := range 2 {
		put(fmt.Sprintf("runs/small%d/1/m.safetensors", i), weights(t, []string{"scale", "step"}, random(64, 1), []byte{byte(i)}))
		r.sync()
		r.wantChain(fmt.Sprintf("runs/small%d/1", i), fmt.Sprintf("small%d/1 none 2", i))
	}
	// One that is trained further with its weights frozen is inferred, though most of its bytes are constant,
	// and with weights added.
	put("runs/tuned/1/m.safetensors",
		weights(t, append(names, "5.lora"), ones, zeros, mask, []byte{8, 0, 0, 0, 0, 0, 0, 0},
			random(size, 'A'), random(size/2, 'L')))
	r.sync()
	r.wantChain("runs/tuned/1", "tuned/1 inferred 2; norm0/1 none 4")
	r = r.withoutIndex()
	r.wantChain("runs/tuned/1", "tuned/1 inferred 2; norm0/1 none 4")
}

// Who names a parent that comes later is not taken for the parent of that.
func TestParentComesLater(t *testing.T) {
	r := newRig(t)
	r.save("child/1", "ABC")
	n := r.find("runs/child/1")
	if err := r.SetXattr(n, steps.ParentXattr, []byte("runs/base/5"), 0); err != nil {
		t.Fatal(err)
	}
	r.forget(n)
	r.save("base/5", "ABCD")
	r.wantChain("runs/base/5", "base/5 none 4")
	r.save("other/1", "ABCD")
	r.wantChain("runs/other/1", "other/1 inferred 0; base/5 none 4")
}
