package volume

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"ckptfs/fs/tree"
)

// A store that an earlier version closed in order has an index that is made again. Who may not write is told
// that, and not that the store is damaged.
func TestOlderIndex(t *testing.T) {
	r := newRig(t)
	want := bytes.Repeat([]byte("weights "), 1000)
	for _, dir := range []string{"runs", "runs/a", "runs/a/1"} {
		r.mkdir(dir)
	}
	r.write("runs/a/1/f", want)
	r.sync()
	before := r.stats()
	r.close()
	p, err := os.ReadFile(r.at(tree.IndexFile))
	if err != nil {
		t.Fatal(err)
	}
	p = bytes.ReplaceAll(p, []byte("ckptfs-index\x00\x00\x00\x04"), []byte("ckptfs-index\x00\x00\x00\x03"))
	if err := os.WriteFile(r.at(tree.IndexFile), p, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(Options{Dir: r.dir, ReadOnly: true})
	if !errors.Is(err, ErrNeedsRecovery) || !strings.Contains(err.Error(), "earlier version") {
		t.Fatal(err)
	}
	for _, wrong := range []string{"corrupt", "not closed in order"} {
		if strings.Contains(err.Error(), wrong) {
			t.Errorf("%v: it is not", err)
		}
	}
	r = r.reopen()
	if got := r.stats(); len(got.Encodings) != len(before.Encodings) || got.Chunks != before.Chunks {
		t.Errorf("%+v, before %+v", got, before)
	}
	ro := r.reopen(func(o *Options) { o.ReadOnly = true })
	if !bytes.Equal(ro.read("runs/a/1/f"), want) {
		t.Error("the file is another one")
	}
}
