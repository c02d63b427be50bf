package volume

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"ckptfs/fs/control"
	"ckptfs/fs/usage"
)

// counted is what is counted of the store by looking at all of it.
func (r *rig) counted() *control.Stats {
	r.t.Helper()
	u := usage.New()
	u.Start(counted(r.Volume))
	defer u.Stop()
	s, err := u.Stats(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// keptUp fails unless the counts that are kept are those of looking at all.
func (r *rig) keptUp() {
	r.t.Helper()
	for {
		before, all, after := r.stats(), r.counted(), r.stats()
		before.Waiting, after.Waiting = all.Waiting, all.Waiting // the queue's
		if reflect.DeepEqual(all, after) {
			return
		}
		if reflect.DeepEqual(before, after) { // else something went on meanwhile in the background
			r.t.Fatalf("kept\n%+v\nof looking at all\n%+v", after, all)
		}
	}
}

// A file that gets the inode of one that is gone is another one, though nothing was written to it.
func TestStatsOfReusedInode(t *testing.T) {
	r := newRig(t)
	for range 20 {
		r.write("f", random(1000, 1))
		ino := r.stat("f").Ino
		r.keptUp()
		r.unlink("f")
		n, a, err := r.Mknod(r.names.Root(), "f", 0o640, 0, r.me)
		if err != nil {
			t.Fatal(err)
		}
		r.forget(n)
		r.keptUp()
		if a.Ino == ino {
			return
		}
		r.unlink("f")
	}
	t.Skip("the host gives no inode twice")
}

// Once counted, nothing is read again that did not change: not a manifest, and none that is lost by now.
func TestStatsKept(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs/a")
	for i, p := range []string{"runs/a/1.safetensors", "runs/a/2.safetensors"} {
		r.write(p, trained(t, 1, i))
	}
	r.sync()
	want := r.stats()
	segments, err := filepath.Glob(r.at("segments", "*"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	for _, p := range segments {
		if err := os.Truncate(p, 0); err != nil {
			t.Fatal(err)
		}
	}
	got := r.stats()
	if got.UniqueBytes != want.UniqueBytes || got.Manifests != 2 || got.Damaged > 0 {
		t.Errorf("%+v, it was %+v", got, want)
	}
	if all := r.counted(); all.Damaged != 2 {
		t.Errorf("of what is lost: %+v", all)
	}
}

// A list of chunks that cannot be read hurts each file that has it, until the same is stored again.
func TestStatsOfDamage(t *testing.T) {
	r := newRig(t)
	shared := random(600<<10, 1)
	files := []string{"1.safetensors", "2.safetensors", "3.safetensors"}
	save := func(i int) {
		r.write(files[i], weights(t, []string{"a", "b"}, shared, random(100<<10, uint64(10+i))))
		r.sync()
	}
	save(0)
	save(1)
	_, m := r.manifestOf(files[0])
	for _, o := range m.Objects {
		if o.List {
			r.damage(o.Digest)
		}
	}
	want := func(damaged int64) {
		t.Helper()
		if s := r.stats(); s.Damaged != damaged {
			t.Errorf("%d damaged, want %d", s.Damaged, damaged)
		}
		r.keptUp()
	}
	want(2)
	r.unlink(files[1])
	want(1)
	save(2)
	want(0)
	own, _ := r.manifestOf(files[2])
	r.damage(own)
	r = r.reopen()
	want(1)
	r.unlink(files[2])
	want(0)
}

// A list that is damaged once it was counted, and is counted for another run, is taken back as it was
// counted.
func TestStatsOfLaterDamage(t *testing.T) {
	r := newRig(t)
	shared := random(600<<10, 1)
	for _, d := range []string{"runs", "runs/a", "runs/a/1", "runs/b", "runs/b/1"} {
		r.mkdir(d)
	}
	save := func(p string, own uint64) {
		r.write(p, weights(t, []string{"a", "b"}, shared, random(100<<10, own)))
		r.sync()
	}
	save("runs/a/1/m.safetensors", 10)
	r.keptUp()
	_, m := r.manifestOf("runs/a/1/m.safetensors")
	for _, o := range m.Objects {
		if o.List {
			r.damage(o.Digest)
		}
	}
	save("runs/b/1/m.safetensors", 11)
	if s := r.stats(); s.Damaged != 2 {
		t.Errorf("%+v", s)
	}
	r.unlink("runs/a/1/m.safetensors")
	r.keptUp()
	if s := r.stats(); s.Damaged != 1 || s.UniqueBytes > 200<<10 {
		t.Errorf("%+v", s)
	}
}

// A segment that the disk does not read hurts the files whose manifests and lists lie in it, and no answer.
// What was not read is not taken back when it can be read again.
func TestStatsOfUnreadSegment(t *testing.T) {
	r := newRig(t)
	weights := func(step int) []byte { return trained(t, 1, step) }
	r.write("1.safetensors", weights(0))
	r.sync()
	r.prune(control.PruneOptions{MaxUnused: 1}) // seals the segment
	for i, p := range []string{"2.safetensors", "3.safetensors"} {
		r.write(p, weights(1+i))
		r.sync()
	}
	names, err := filepath.Glob(r.at("segments", "*"))
	if err != nil || len(names) != 2 {
		t.Fatal(names, err)
	}
	if s := r.stats(); s.Deltas == 0 {
		t.Fatalf("nothing in one segment needs the other: %+v", s)
	}
	r.close()
	for i, p := range names {
		aside := r.at("aside")
		if err := errors.Join(os.Rename(p, aside), os.Mkdir(p, 0o700)); err != nil {
			t.Fatal(err)
		}
		r = openRig(t, r.dir)
		if s := r.stats(); s.Files != int64(3-i) || s.Damaged != []int64{1, 2}[i] {
			t.Errorf("without %s: %+v", filepath.Base(p), s)
		}
		r.keptUp()
		if err := errors.Join(os.Remove(p), os.Rename(aside, p)); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{"1.safetensors", "2.safetensors", "3.safetensors"}[i : 2*i+1] {
			r.unlink(p)
		}
		r.keptUp()
		r.close()
	}
}

// usageModel is a tree in which anything may happen.
type usageModel struct {
	r    *rig
	open []*Handle
}

// checkUsage has do try some trees.
func checkUsage(t *testing.T, do func(rt *rapid.T, m *usageModel)) {
	checks := flag.Lookup("rapid.checks")
	if checks.Value.String() == checks.DefValue { // each takes some 0.5 s
		checks.Value.Set("20")
		defer checks.Value.Set(checks.DefValue)
	}
	flag.Set("rapid.nofailfile", "true")
	rapid.Check(t, func(rt *rapid.T) {
		m := &usageModel{r: newRig(t)}
		m.r.t = rt
		defer func() {
			m.closeAll()
			m.r.close()
			os.RemoveAll(m.r.dir)
		}()
		for _, d := range usageFolders {
			m.mkdirs(d)
		}
		do(rt, m)
	})
}

// What `stats` keeps is what it counts by looking at all, whatever was done, in whatever order.
func TestUsage(t *testing.T) {
	checkUsage(t, func(rt *rapid.T, m *usageModel) {
		m.r.keptUp()
		rt.Repeat(map[string]func(*rapid.T){
			"write":    m.write,
			"step":     m.step,
			"move":     m.move,
			"exchange": m.exchange,
			"link":     m.link,
			"unlink":   m.unlink,
			"remove":   m.removeAll,
			"truncate": m.truncate,
			"open":     m.openOne,
			"close":    func(*rapid.T) { m.closeAll() },
			"sync":     func(*rapid.T) { m.r.sync() },
			"evict":    m.evict,
			"hydrate":  m.hydrate,
			"prune":    m.prune,
			"compact":  func(*rapid.T) { m.r.compact(control.CompactOptions{}) },
			"reopen":   m.reopen,
			"compare":  func(*rapid.T) { m.r.keptUp() },
		})
		m.closeAll()
		m.r.sync()
		m.r.keptUp()
	})
}

var (
	usageFolders = []string{"runs/a/1", "runs/a/2", "runs/b/1", "runs/b/2/deep", "runs/c", "other/1"}
	usageNames   = rapid.SampledFrom([]string{"m.safetensors", "n.safetensors", "notes"})
)

func (m *usageModel) mkdirs(p string) {
	for i := range p {
		if p[i] == '/' && !m.r.exists(p[:i]) {
			m.r.mkdir(p[:i])
		}
	}
	if !m.r.exists(p) {
		m.r.mkdir(p)
	}
}

// all lists what is in the tree: files, or folders.
func (m *usageModel) all(folders bool) (paths []string) {
	root := m.r.at("tree")
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err == nil && p != root && e.IsDir() == folders {
			paths = append(paths, strings.TrimPrefix(p, root+"/"))
		}
		return err
	})
	if err != nil {
		m.r.t.Fatal(err)
	}
	return paths
}

// one draws one of what is there, or skips the action.
func one(rt *rapid.T, what string, of []string) string {
	if len(of) == 0 {
		rt.Skip("there is none")
	}
	return rapid.SampledFrom(of).Draw(rt, what)
}

func (m *usageModel) file(rt *rapid.T) string { return one(rt, "file", m.all(false)) }

// place draws where a file may be put.
func (m *usageModel) place(rt *rapid.T) string {
	return path.Join(one(rt, "folder", m.all(true)), usageNames.Draw(rt, "name"))
}

// data draws the bytes of a file, some of which are those of others.
func (m *usageModel) data(rt *rapid.T) []byte {
	if rapid.IntRange(0, 3).Draw(rt, "kind") == 0 {
		return random(rapid.SampledFrom([]int{0, 3000, 100_000, 600_000}).Draw(rt, "size"), 1)
	}
	model := rapid.IntRange(1, 2).Draw(rt, "model")
	return trained(m.r.test, model, rapid.IntRange(0, 4).Draw(rt, "step"))
}

func (m *usageModel) write(rt *rapid.T) {
	p := m.place(rt)
	if m.isFolder(p) {
		rt.Skip("a folder")
	}
	if m.r.exists(p) {
		m.r.unlink(p)
	}
	m.r.write(p, m.data(rt))
}

// step saves a step of a run, which may be there.
func (m *usageModel) step(rt *rapid.T) {
	d := path.Join("runs", rapid.SampledFrom([]string{"a", "b", "d"}).Draw(rt, "run"),
		rapid.SampledFrom([]string{"1", "2", "3"}).Draw(rt, "step"))
	for _, p := range []string{"runs", path.Dir(d), d} {
		if m.r.exists(p) && !m.isFolder(p) {
			rt.Skip("a file")
		}
	}
	m.mkdirs(d)
	p := d + "/m.safetensors"
	if m.isFolder(p) {
		rt.Skip("a folder")
	}
	m.r.write(p, m.data(rt))
	if rapid.Bool().Draw(rt, "sync") {
		m.r.sync()
	}
}

func (m *usageModel) isFolder(p string) bool {
	st, err := os.Lstat(m.r.at("tree", p))
	return err == nil && st.IsDir()
}

// move moves a file or a folder, over what is there or not.
func (m *usageModel) move(rt *rapid.T) {
	if rapid.Bool().Draw(rt, "file") {
		_ = m.r.tryRename(m.file(rt), m.place(rt), 0)
		return
	}
	to := rapid.SampledFrom([]string{"runs/d", "runs/a", "runs/a/7", "other/3", "old", "runs", "runs/b/2/x"})
	from, at := one(rt, "folder", m.all(true)), to.Draw(rt, "to")
	if m.isFolder(path.Dir(at)) {
		_ = m.r.tryRename(from, at, 0) // which may be in itself, or not empty
	}
}

func (m *usageModel) exchange(rt *rapid.T) {
	all := append(m.all(true), m.all(false)...)
	_ = m.r.tryRename(one(rt, "one", all), one(rt, "other", all), unix.RENAME_EXCHANGE)
}

func (m *usageModel) link(rt *rapid.T) {
	if from, to := m.file(rt), m.place(rt); !m.r.exists(to) {
		m.r.link(from, to)
	}
}

func (m *usageModel) unlink(rt *rapid.T) { m.r.unlink(m.file(rt)) }

// removeAll removes a folder and what is in it.
func (m *usageModel) removeAll(rt *rapid.T) { m.removeTree(one(rt, "folder", m.all(true))) }

func (m *usageModel) removeTree(top string) {
	for _, p := range m.all(false) {
		if strings.HasPrefix(p, top+"/") {
			m.r.unlink(p)
		}
	}
	folders := m.all(true)
	for i := len(folders) - 1; i >= 0; i-- {
		if p := folders[i]; p == top || strings.HasPrefix(p, top+"/") {
			dir, name := m.r.dirOf(p)
			if err := m.r.Rmdir(dir, name); err != nil {
				m.r.t.Fatal(err)
			}
			m.r.forget(dir)
		}
	}
}

func (m *usageModel) truncate(rt *rapid.T) {
	m.r.truncate(m.file(rt), int64(rapid.IntRange(0, 700_000).Draw(rt, "size")))
}

// openOne opens a file for writing and writes to it. It stays open.
func (m *usageModel) openOne(rt *rapid.T) {
	h := m.r.open(m.file(rt), unix.O_RDWR)
	m.open = append(m.open, h)
	m.r.writeAt(h, random(1000, 9), int64(rapid.IntRange(0, 300_000).Draw(rt, "at")))
}

func (m *usageModel) closeAll() {
	for _, h := range m.open {
		m.r.release(h)
	}
	m.open = nil
}

func (m *usageModel) evict(rt *rapid.T) {
	if _, err := m.r.Evict(context.Background(), "", nil); err != nil {
		rt.Fatal(err)
	}
}

func (m *usageModel) hydrate(rt *rapid.T) {
	if _, err := m.r.Hydrate(context.Background(), "", nil); err != nil {
		rt.Fatal(err)
	}
}

func (m *usageModel) prune(rt *rapid.T) {
	m.r.prune(control.PruneOptions{
		Grace:     rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(rt, "grace"),
		MaxUnused: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(rt, "max unused"),
	})
}

// reopen opens the store again after a clean end, or after none.
func (m *usageModel) reopen(rt *rapid.T) {
	m.closeAll()
	noDelta := rapid.Bool().Draw(rt, "no delta") // so that a compaction has something to do
	set := func(o *Options) { o.NoDelta = noDelta }
	if t := m.r.t; rapid.Bool().Draw(rt, "clean") {
		m.r = m.r.reopen(set)
		m.r.t = t
	} else {
		dir := m.r.copyStore()
		m.r.close()
		os.RemoveAll(m.r.dir)
		m.r = openRig(m.r.test, dir, set)
		m.r.t = t
	}
	m.r.keptUp()
}
