package volume

import (
	"context"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Files that were packed just now are entered as models without a record being read: their manifests are at
// hand.
func TestSettleReadsNoRecord(t *testing.T) {
	r := newRig(t)
	r.save("a/1", "ABCD")
	r.models.Keep(t.Context())
	for i := range 8 {
		step := fmt.Sprintf("runs/b%d/1", i)
		r.mkdir(step)
		size := 2 + i // as no other file has it: none is looked at for what this one may be stored against
		r.write(step+"/m.safetensors", weights(t, []string{fmt.Sprint("w", i)}, random(size<<10, uint64(i))))
	}
	before, _ := r.store.Reads()
	r.sync()
	r.eventually("they are entered", func() bool {
		r.models.Keep(context.Background())
		return len(r.models.Entries("runs")) == 9
	})
	if after, _ := r.store.Reads(); after != before {
		t.Errorf("%d records were read for 8 files", after-before)
	}
}

// A file that is known is found without a look at its path, of which nothing is to be seen here; and only as
// the inode that it is.
func TestFoundByInode(t *testing.T) {
	r := newRig(t)
	r.save("a/1", "ABCD")
	const p = "runs/a/1/m.safetensors"
	n := r.find(p)
	defer r.forget(n)
	f := files{r.Volume}
	if _, err := f.Record(p, n.Ino()+1); err != unix.ENOENT {
		t.Errorf("another inode: %v", err)
	}
	if _, err := f.Record("runs/a/2/m.safetensors", n.Ino()); err != unix.ENOENT {
		t.Errorf("another path: %v", err)
	}
	if err := os.Rename(r.at("tree", "runs"), r.at("tree", "aside")); err != nil {
		t.Fatal(err)
	}
	rec, err := f.Record(p, n.Ino())
	if err != nil || rec.Manifest.IsZero() {
		t.Errorf("%+v, %v", rec, err)
	}
	opened, err := f.OpenInode(p, n.Ino())
	if err != nil {
		t.Fatal(err)
	}
	opened.Unpin()
	if _, err := f.Attribute(p, n.Ino(), "user.none"); err != unix.ENODATA {
		t.Error(err)
	}
	if _, err := f.Record(p, 0); err != unix.ENOENT {
		t.Errorf("without an inode: %v", err)
	}
	if err := os.Rename(r.at("tree", "aside"), r.at("tree", "runs")); err != nil {
		t.Fatal(err)
	}
}
