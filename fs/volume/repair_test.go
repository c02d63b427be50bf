package volume

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

func (r *rig) check() *control.Checked {
	r.t.Helper()
	c, err := r.Check(context.Background(), control.CheckOptions{ReadData: true}, nil)
	if err != nil {
		r.t.Fatalf("check: %v", err)
	}
	return c
}

// repair closes the store, repairs a part, and opens it again.
func (r *rig) repair(part string) (*rig, *control.Repaired) {
	r.t.Helper()
	r.close()
	rep, err := Repair(context.Background(), part, Options{Dir: r.dir, HotSize: 1 << 40, Log: r.log.report},
		nil)
	if err != nil {
		r.t.Fatalf("repair %s: %v", part, err)
	}
	r = openRig(r.test, r.dir)
	<-r.surveyed
	return r, rep
}

// about returns the problems of a path.
func about(c *control.Checked, p string) (ps []control.Problem) {
	for _, x := range c.Problems {
		if x.Path == p {
			ps = append(ps, x)
		}
	}
	return ps
}

// A chunk is damaged: check names the file, the tensor and the repair; the repairs contain it.
func TestCheckAndRepairSegments(t *testing.T) {
	r := newRig(t)
	good := random(2<<20, 1)
	r.write("hurt.safetensors", weights(t, []string{"a good", "bad"}, good, random(700<<10, 2)))
	r.write("fine.safetensors", weights(t, []string{"a good", "other"}, good, random(700<<10, 3)))
	r.write("kept", random(600<<10, 4))
	r.sync()
	r.evictAll()
	r.sound()
	_, m := r.manifestOf("hurt.safetensors")
	for _, o := range m.Objects {
		if o.Len == 700<<10 {
			spans, err := o.Spans(r.store.Get)
			if err != nil {
				t.Fatal(err)
			}
			r.damage(spans[1].Hash)
		}
	}
	// The same of a resident file.
	r.hydrateFile("kept")
	_, km := r.manifestOf("kept")
	spans, err := km.Objects[0].Spans(r.store.Get)
	if err != nil {
		t.Fatal(err)
	}
	r.damage(spans[0].Hash)

	c := r.check()
	ps := about(c, "hurt.safetensors")
	if len(ps) != 1 || len(ps[0].Tensors) != 1 || ps[0].Tensors[0] != "bad" || ps[0].TensorCount != 1 ||
		ps[0].Repair != "segments" {
		t.Errorf("%+v", c.Problems)
	}
	if len(about(c, "fine.safetensors")) > 0 || len(about(c, "kept")) != 1 || len(about(c, "")) != 2 {
		t.Errorf("%+v", c.Problems)
	}
	if quick, err := r.Check(context.Background(), control.CheckOptions{}, nil); err != nil ||
		quick.ReadRecords != 0 {
		t.Errorf("%+v, %v", quick, err)
	}

	r, rep := r.repair(RepairSegments)
	if len(rep.Actions) < 2 {
		t.Errorf("%+v", rep)
	}
	r.same("fine.safetensors", weights(t, []string{"a good", "other"}, good, random(700<<10, 3)))
	if ps := about(r.check(), "hurt.safetensors"); len(ps) != 1 || ps[0].Repair != "tree" {
		t.Errorf("%+v", ps)
	}
	r, rep = r.repair(RepairTree)
	if len(rep.Actions) != 2 {
		t.Errorf("%+v", rep)
	}
	if r.exists("hurt.safetensors") {
		t.Error("a file without its bytes is still there")
	}
	if _, err := tree.ReadRecord(r.at(tree.LostFound, tree.TreeDir, "hurt.safetensors")); err != nil {
		t.Error(err)
	}
	r.sync()
	r.evictAll()
	r.same("kept", random(600<<10, 4))
	r.same("fine.safetensors", weights(t, []string{"a good", "other"}, good, random(700<<10, 3)))
	c = r.check()
	if len(c.Problems) > 0 || c.LostFound == 0 {
		t.Errorf("%+v", c)
	}
	// What is left of the file in lost+found stays, until that is removed.
	before := r.check().Records
	r.prune(now)
	if after := r.check().Records; after < before-2 {
		t.Errorf("%d records, %d before", after, before)
	}
	if _, rep := r.repair(RepairTree); len(rep.Actions) != 0 {
		t.Errorf("repaired twice: %+v", rep)
	}
}

func (r *rig) hydrateFile(p string) {
	r.t.Helper()
	if _, err := r.Hydrate(context.Background(), p, nil); err != nil {
		r.t.Fatal(err)
	}
	r.want(p, both)
}

// A local copy is read without being checked. A check that reads everything finds what rots in it, and
// eviction repairs it.
func TestCheckLocalCopy(t *testing.T) {
	r := newRig(t)
	data := weights(t, []string{"a", "b"}, random(600<<10, 1), make([]byte, 300<<10))
	r.write("f", data)
	r.write("fine", data)
	r.sync()
	r.sound()
	f, err := os.OpenFile(r.rawPath("f"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{^data[500<<10]}, 500<<10); err != nil {
		t.Fatal(err)
	}
	f.Close()
	c := r.check()
	if ps := about(c, "f"); len(ps) != 1 || ps[0].Repair != "evict" || len(c.Problems) != 1 {
		t.Errorf("%+v", c.Problems)
	}
	if quick, err := r.Check(context.Background(), control.CheckOptions{}, nil); err != nil ||
		len(quick.Problems) > 0 {
		t.Errorf("%+v, %v", quick, err)
	}
	if _, err := r.Evict(context.Background(), "f", nil); err != nil {
		t.Fatal(err)
	}
	r.want("f", packed)
	r.sound()
	r.same("f", data)
}

func TestRepairIndex(t *testing.T) {
	r := newRig(t)
	data := random(600<<10, 1)
	r.write("f", data)
	r.packOut("f")
	r, rep := r.repair(RepairIndex)
	if len(rep.Actions) != 1 || rep.Records == 0 {
		t.Errorf("%+v", rep)
	}
	r.same("f", data)
	r.sound()
	if _, err := os.Stat(r.at(tree.LostFound, "index.db.corrupt-1")); err != nil {
		t.Error(err)
	}
	r.close()
	if err := os.Remove(r.at(tree.IndexFile)); err != nil {
		t.Fatal(err)
	}
	r, rep = r.repair(RepairIndex)
	if len(rep.Actions) != 1 || !strings.Contains(rep.Actions[0].Did, "rebuilt") || rep.Records == 0 {
		t.Errorf("of one that is not there: %+v", rep)
	}
	r.same("f", data)
	_, err := Repair(context.Background(), RepairIndex, Options{Dir: r.dir}, nil)
	if locked := (*LockedError)(nil); !errors.As(err, &locked) {
		t.Errorf("repaired while open: %v", err)
	}
	if _, err := Repair(context.Background(), "all", Options{Dir: r.dir}, nil); err == nil {
		t.Error("repaired what is no part")
	}
}

// A store that was copied without attributes is whole again after a repair.
func TestRepairTreeAfterCopy(t *testing.T) {
	r := newRig(t)
	files := map[string][]byte{"a/evicted": random(600<<10, 1), "a/both": random(500<<10, 2),
		"plain": []byte("text")}
	r.mkdir("a")
	for p, b := range files {
		r.write(p, b)
	}
	r.sync()
	r.evictAll()
	r.hydrateFile("a/both")
	mtime := r.stat("a/evicted").Mtime
	r.close()
	to := filepath.Join(t.TempDir(), "store")
	if out, err := exec.Command("cp", "-r", "--preserve=mode,timestamps", "--sparse=never", r.dir, to).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r = openRig(t, to)
	r.sync() // must not pack the header and zeros as the file
	c := r.check()
	if ps := about(c, "a/evicted"); len(ps) != 1 || ps[0].Repair != "tree" ||
		!strings.Contains(ps[0].What, "xattrs") {
		t.Errorf("%+v", c.Problems)
	}
	r, rep := r.repair(RepairTree)
	if len(rep.Actions) != 1 || rep.Actions[0].Path != "a/evicted" {
		t.Errorf("%+v", rep)
	}
	r.want("a/evicted", packed)
	for p, b := range files {
		r.same(p, b)
	}
	if got := r.stat("a/evicted").Mtime; got != mtime {
		t.Errorf("modified %v, was %v", got, mtime)
	}
	r.sound()
}

// Records that cannot be read, sizes that are not the manifest's, headers that are not the record's.
func TestRepairTree(t *testing.T) {
	r := newRig(t)
	files := map[string][]byte{"garbled": random(600<<10, 1), "short": random(500<<10, 2),
		"header": random(400<<10, 3), "gone": random(300<<10, 4)}
	for p, b := range files {
		r.write(p, b)
	}
	r.sync()
	r.evictAll()
	r.hydrateFile("gone")
	r.close()
	set := func(p string, b []byte) {
		t.Helper()
		if err := unix.Setxattr(r.rawPath(p), tree.XattrName, b, 0); err != nil {
			t.Fatal(err)
		}
	}
	set("garbled", []byte("\x02garbled"))
	set("gone", []byte("\x02garbled"))
	if err := os.Truncate(r.rawPath("short"), 1234); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(r.rawPath("header"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("xyz"), 100); err != nil {
		t.Fatal(err)
	}
	f.Close()
	r = openRig(t, r.dir)
	<-r.surveyed
	c := r.check()
	for p := range files {
		if ps := about(c, p); len(ps) == 0 || ps[0].Repair != "tree" {
			t.Errorf("%s: %+v", p, ps)
		}
	}
	r, rep := r.repair(RepairTree)
	if len(rep.Actions) != 4 {
		t.Errorf("%+v", rep)
	}
	for p, b := range files {
		if p == "gone" { // nothing says what its bytes are worth
			if r.exists(p) {
				t.Errorf("%s is there", p)
			}
			if got, err := os.ReadFile(r.at(tree.LostFound, tree.TreeDir, p)); err != nil ||
				string(got) != string(b) {
				t.Errorf("%s: not as it was: %v", p, err)
			}
			continue
		}
		r.same(p, b)
	}
	r.sound()
}

// The index is damaged under a store in use: reads and saves go on.
func TestIndexDamagedInUse(t *testing.T) {
	r := newRig(t)
	files := map[string][]byte{}
	for i := range 20 {
		p := string(rune('a' + i))
		files[p] = random(600<<10, uint64(i))
		r.write(p, files[p])
	}
	r.sync()
	r.evictAll()
	st, err := os.Stat(r.at(tree.IndexFile))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(r.at(tree.IndexFile), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, st.Size()-8192), 8192); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for p, b := range files {
		r.same(p, b)
	}
	r.write("new", random(600<<10, 99))
	r.pack("new")
	r.sound()
	if !r.log.has("index rebuilt") {
		t.Errorf("reported: %s", r.log)
	}
}

// A chunk is damaged in a segment that a crash left without a footer: the one that the next start makes does
// not list it, and the index still names it. A check that reads data finds that, and the repairs contain it.
func TestCheckReadsWhatNoFooterLists(t *testing.T) {
	r := newRig(t)
	r.write("hurt", random(700<<10, 1))
	r.sync()
	r.evictAll()
	_, m := r.manifestOf("hurt")
	spans, err := m.Objects[0].Spans(r.store.Get)
	if err != nil {
		t.Fatal(err)
	}
	r.damage(spans[0].Hash)
	r = r.crashed()
	<-r.surveyed
	ps := about(r.check(), "hurt")
	if len(ps) != 1 || ps[0].Repair != "index" || !ps[0].Data {
		t.Errorf("%+v", ps)
	}
	r, _ = r.repair(RepairIndex)
	if ps := about(r.check(), "hurt"); len(ps) != 1 || ps[0].Repair != "tree" {
		t.Errorf("%+v", ps)
	}
	r.write("hurt", random(700<<10, 1))
	r.sync()
	r.evictAll()
	r.same("hurt", random(700<<10, 1))
	r.sound()
}
