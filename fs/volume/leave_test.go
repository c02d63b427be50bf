package volume

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/queue"
	"ckptfs/fs/tree"
)

// leave makes every file of a closed rig's store plain.
func (r *rig) leave() *control.Left {
	r.t.Helper()
	left, err := Leave(context.Background(), Options{Dir: r.dir, Log: r.log.report}, math.MaxInt64, nil)
	if err != nil {
		r.t.Fatalf("leave: %v", err)
	}
	return left
}

// plain fails unless a name in the tree is a plain file with these bytes.
func (r *rig) plain(name string, want []byte) {
	r.t.Helper()
	path := r.at(tree.TreeDir, name)
	if rec, err := tree.ReadRecord(path); err == nil && rec.Packed() {
		r.t.Errorf("%s is packed still", name)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		r.t.Errorf("%s: %d bytes of %d, as they were %v: %v", name, len(got), len(want), bytes.Equal(got, want), err)
	}
}

// Files in every state become plain, with their bytes and times.
func TestLeave(t *testing.T) {
	r := newRig(t)
	a, b, small := random(2<<20, 1), random(3<<20, 2), []byte("{}")
	r.write("hollow", a)
	r.write("resident", b)
	r.write("small", small)
	r.sync()
	r.evictAll()
	r.hydrateFile("resident")
	r.want("hollow", packed)
	r.write("late", b[:1<<20])
	var was, is unix.Stat_t
	if err := unix.Stat(r.at(tree.TreeDir, "hollow"), &was); err != nil {
		t.Fatal(err)
	}
	r.close()
	left := r.leave()
	if left.Files < 2 || len(left.Damaged)+len(left.Kept)+len(left.Lost) > 0 {
		t.Errorf("left: %+v", left)
	}
	r.plain("hollow", a)
	r.plain("resident", b)
	r.plain("late", b[:1<<20])
	r.plain("small", small)
	if err := unix.Stat(r.at(tree.TreeDir, "hollow"), &is); err != nil || is.Ino != was.Ino {
		t.Errorf("the inode changed, %d to %d: %v", was.Ino, is.Ino, err)
	}
	if again := r.leave(); again.Files != 0 {
		t.Errorf("the second time: %+v", again)
	}
	openRig(t, r.dir) // the store goes on
}

// Many files, some with several names and some large, become plain side by side, each once.
func TestLeaveSideBySide(t *testing.T) {
	r := newRig(t)
	const files = 200
	of := func(i int) []byte { return random(70<<10+i%20/19*9<<20, uint64(i)) }
	for i := range files {
		r.write(fmt.Sprint("d", i%3, "-", i), of(i))
	}
	r.sync()
	r.evictAll()
	r.close()
	at := func(i, link int) string {
		return filepath.Join([]string{"", "links"}[link], fmt.Sprint("d", i%3, "-", i))
	}
	if err := os.Mkdir(r.at(tree.TreeDir, "links"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < files; i += 2 {
		if err := os.Link(r.at(tree.TreeDir, at(i, 0)), r.at(tree.TreeDir, at(i, 1))); err != nil {
			t.Fatal(err)
		}
	}
	if left := r.leave(); left.Files != files || len(left.Damaged)+len(left.Kept)+len(left.Lost) > 0 {
		t.Errorf("%d files: %+v", left.Files, left)
	}
	for i := range files {
		r.plain(at(i, 0), of(i))
		if i%2 == 0 {
			r.plain(at(i, 1), of(i))
		}
	}
}

// A damaged chunk names its file, and every other file is made plain. A local copy that rotted is made again,
// and one whose chunks are lost is kept.
func TestLeaveDamaged(t *testing.T) {
	r := newRig(t)
	bad, fine, rotten, kept := random(2<<20, 1), random(2<<20, 2), random(2<<20, 3), random(2<<20, 4)
	for name, p := range map[string][]byte{"bad": bad, "fine": fine, "rotten": rotten, "kept": kept} {
		r.write(name, p)
	}
	r.sync()
	r.evictAll()
	r.hydrateFile("rotten")
	r.hydrateFile("kept")
	for _, name := range []string{"bad", "kept"} {
		_, m := r.manifestOf(name)
		spans, err := m.Objects[0].Spans(r.store.Get)
		if err != nil {
			t.Fatal(err)
		}
		r.damage(spans[0].Hash)
	}
	r.close()
	path := r.at(tree.TreeDir, "rotten")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("rot"), 1<<20); err != nil {
		t.Fatal(err)
	}
	f.Close()
	left := r.leave()
	if len(left.Damaged) != 1 || left.Damaged[0].Path != "bad" {
		t.Errorf("damaged: %+v", left.Damaged)
	}
	r.plain("fine", fine)
	r.plain("rotten", rotten)
	r.plain("kept", kept)
	if rec, err := tree.ReadRecord(filepath.Join(r.dir, tree.TreeDir, "bad")); err != nil || !rec.Hollow {
		t.Errorf("bad: %+v, %v", rec, err)
	}
}

// However many files there are, packed or not, none of them is held in memory. After an unclean end, too.
func TestLeaveHoldsNoFile(t *testing.T) {
	r := newRig(t)
	r.withoutPacking()
	const files = 300
	for i := range files {
		r.write(fmt.Sprint("f", i), random(5000, uint64(i)))
	}
	r.write("packed", random(200<<10, 1))
	dir := r.copyStore() // as a kill leaves it
	r.close()
	for _, dir := range []string{r.dir, dir} {
		v, err := openToLeave(Options{Dir: dir, Log: r.log.report})
		if err != nil {
			t.Fatal(err)
		}
		<-v.surveyed
		if _, err := v.passes.Leave(t.Context(), 0, nil); err != nil {
			t.Error(err)
		}
		nodes, _ := v.names.Leftover()
		if w := queue.WaitingIn(v.queue); w.Queued.Files > 0 || len(nodes) > 0 {
			t.Errorf("%d files wait, and %d nodes are held", w.Queued.Files, len(nodes))
		}
		if err := v.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
