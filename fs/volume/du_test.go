package volume

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/fs/control"
)

func (r *rig) du(paths ...string) *control.Du {
	r.t.Helper()
	return r.duBy(control.DuOptions{Paths: paths})
}

func (r *rig) duBy(o control.DuOptions) *control.Du {
	r.t.Helper()
	d, err := r.Du(context.Background(), o)
	if err != nil {
		r.t.Fatalf("du: %v", err)
	}
	return d
}

// records is what the records of chunks, lists and manifests take, by the index.
func (r *rig) records() (n int64) {
	r.t.Helper()
	if err := r.index.ForEach(0, 0xffff, func(e cas.Entry) error {
		if e.Kind != cas.Event {
			n += e.RecordSize()
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// What `du` says that the removal of some paths gives back is what it gives, to the byte, whatever the tree
// and the deltas in it are. So do the parts say of themselves, and a dry prune of what was removed.
func TestDuForetells(t *testing.T) {
	checkUsage(t, func(rt *rapid.T, m *usageModel) {
		rt.Repeat(map[string]func(*rapid.T){
			"write":   m.write,
			"step":    m.step,
			"more":    m.step,
			"move":    m.move,
			"link":    m.link,
			"unlink":  m.unlink,
			"sync":    func(*rapid.T) { m.r.sync() },
			"evict":   m.evict,
			"compact": func(*rapid.T) { m.r.compact(control.CompactOptions{}) },
			"foretell": func(rt *rapid.T) {
				m.r.sync()
				m.foretell(rt)
			},
		})
		m.r.sync()
		m.foretell(rt)
	})
}

// foretell compares what du says of some paths with what their removal and a prune give back.
func (m *usageModel) foretell(rt *rapid.T) {
	r := m.r
	r.eventually("nothing is stored that no file needs", func() bool {
		r.prune(now)
		return r.records() == r.duBy(control.DuOptions{Paths: []string{""}, Brief: true}).StoredBytes
	})
	var paths []string
	for range rapid.IntRange(1, 3).Draw(rt, "paths") {
		paths = append(paths, one(rt, "path", append(m.all(true), m.all(false)...)))
	}
	d := r.du(paths...)
	before, local := r.records(), r.stats().LocalBytes
	if brief := r.duBy(control.DuOptions{Paths: paths, Brief: true}); brief.Use != d.Use {
		rt.Fatalf("%v: briefly %+v, else %+v", paths, brief.Use, d.Use)
	}
	// An answer that is made bit by bit is the same.
	parts := r.duBy(control.DuOptions{Paths: paths, Only: control.DuParts}).Parts
	if !slices.Equal(parts, d.Parts) {
		r.t.Errorf("alone the parts are %+v, with the rest %+v", parts, d.Parts)
	}
	if s := r.duBy(control.DuOptions{Paths: paths, Only: control.DuSharers}); s.Use != d.Use ||
		!slices.Equal(s.SharedWith, d.SharedWith) || len(s.Parts) > 0 {
		r.t.Errorf("without parts it is %+v, with them %+v", s, d)
	}
	sizes := r.duBy(control.DuOptions{Paths: paths, Only: control.DuSizes})
	for i, u := range append(slices.Clone(d.Parts), d.Use) {
		u.StoredBytes, u.AloneBytes = 0, 0
		if got := append(slices.Clone(sizes.Parts), sizes.Use)[i]; got != u {
			r.t.Errorf("the sizes are %+v, with the rest %+v", got, u)
		}
	}
	m.parts(rt, d)
	for _, p := range paths {
		m.remove(p)
	}
	var dry *control.Pruned
	r.eventually("no work in the background holds what was removed", func() bool {
		dry = r.prune(control.PruneOptions{DryRun: true, MaxUnused: 0.5})
		return dry.RoomBytes >= d.AloneBytes
	})
	if r.records() != before {
		rt.Fatal("a dry run removed something")
	}
	segments := r.segmentBytes()
	p := r.prune(now)
	if got := before - r.records(); got != d.AloneBytes {
		rt.Fatalf("%v: %d bytes of records went, said was %+v", paths, got, d.Use)
	}
	// Work in the background may have held a record of a model until after the dry run.
	same := p.RoomBytes == dry.RoomBytes || p.RoomBytes > dry.RoomBytes && p.LiveRecords < dry.LiveRecords
	if !same || dry.FreedBytes != dry.RoomBytes || p.RoomBytes < d.AloneBytes {
		rt.Fatalf("%v: %d bytes; a prune says %+v, a dry one %+v", paths, d.AloneBytes, p, dry)
	}
	// What the disk gets is whole blocks: up to two of 4 KiB less for a hole, and a footer moves.
	if got, most := segments-r.segmentBytes(), p.RoomBytes+int64(p.Segments+1)*64<<10; got > most {
		rt.Fatalf("%v: the disk got %d bytes for %d", paths, got, p.RoomBytes)
	}
	if got := local - r.stats().LocalBytes; got != d.FreedBytes {
		rt.Fatalf("%v: %d bytes went from the tree, said was %+v", paths, got, d.Use)
	}
	r.keptUp()
}

// parts holds the parts of an answer, and those who share, against the whole.
func (m *usageModel) parts(rt *rapid.T, d *control.Du) {
	var files, alone, freed, most int64
	for _, p := range d.Parts {
		files += p.Files
		alone += p.AloneBytes
		freed += p.FreedBytes
		most += p.StoredBytes
		if of := m.r.du(p.Name); of.Use != p {
			rt.Fatalf("part %+v by itself is %+v", p, of.Use)
		}
	}
	if len(d.Parts) > 0 && (files < d.Files || alone > d.AloneBytes || freed > d.FreedBytes ||
		most < d.StoredBytes) {
		rt.Fatalf("%+v of parts %+v", d.Use, d.Parts)
	}
	shared := d.StoredBytes - d.AloneBytes
	for i, x := range d.SharedWith {
		if x.Bytes > shared || x.Bytes <= 0 || i > 0 && x.Bytes > d.SharedWith[i-1].Bytes {
			rt.Fatalf("%d bytes are shared, with %+v", shared, d.SharedWith)
		}
	}
	if (shared > 0) != (len(d.SharedWith) > 0) {
		rt.Fatalf("%d bytes are shared, with %+v", shared, d.SharedWith)
	}
}

// remove removes a path if it is there.
func (m *usageModel) remove(p string) {
	if !m.r.exists(p) {
		return
	}
	if !m.isFolder(p) {
		m.r.unlink(p)
		return
	}
	m.removeTree(p)
}

// What a step shares is told with the steps and files that need it, also as bases of theirs.
func TestDuShared(t *testing.T) {
	r := newRig(t)
	for _, d := range []string{"runs/a/1", "runs/a/2", "runs/b/1", "models"} {
		for i := range d {
			if d[i] == '/' && !r.exists(d[:i]) {
				r.mkdir(d[:i])
			}
		}
		r.mkdir(d)
	}
	for _, p := range []string{"runs/a/1", "runs/a/2"} {
		r.write(p+"/m.safetensors", trained(t, 1, int(p[7]-'0')))
		r.sync()
	}
	r.write("models/m.safetensors", r.read("runs/a/2/m.safetensors"))
	r.write("runs/b/1/other.safetensors", random(200<<10, 7))
	r.sync()
	if s := r.stats(); s.Deltas == 0 {
		t.Fatalf("step 2 is not stored against step 1: %+v", s)
	}
	first := r.du("runs/a/1")
	var with []string
	for _, x := range first.SharedWith {
		with = append(with, x.Path)
	}
	slices.Sort(with)
	if !slices.Equal(with, []string{"models/m.safetensors", "runs/a/2"}) {
		t.Errorf("step 1 shares with %v", first.SharedWith)
	}
	if x := first.SharedWith[0]; x.Bytes != first.StoredBytes-first.AloneBytes {
		t.Errorf("step 1 is %+v, shared with %+v", first.Use, first.SharedWith)
	}
	if b := r.du("runs/b"); b.AloneBytes != b.StoredBytes || len(b.SharedWith) > 0 || len(b.Parts) != 1 ||
		b.Parts[0].Name != "runs/b/1" || b.Files != 1 {
		t.Errorf("%+v", b)
	}
	// Both of them, and who is left.
	if d := r.du("runs/a", "models", "runs/a/2"); d.AloneBytes != d.StoredBytes || len(d.Parts) != 2 {
		t.Errorf("%+v", d)
	}
	all := r.du("")
	if s := r.stats(); all.StoredBytes != r.records() || all.LocalBytes != s.LocalBytes ||
		all.LogicalBytes != s.LogicalBytes || len(all.Parts) != 2 {
		t.Errorf("%+v of %+v", all, s)
	}
	users := r.duBy(control.DuOptions{Paths: []string{""}, ByUser: true})
	if u := users.Parts; len(u) != 1 || u[0].Name != strconv.Itoa(os.Getuid()) ||
		u[0].AloneBytes != all.AloneBytes {
		t.Errorf("%+v", u)
	}
	if _, err := r.Du(context.Background(), control.DuOptions{Paths: []string{"runs/none"}}); err == nil {
		t.Error("a path that is not there")
	}
}

// What cannot be read is left out, whether it could be when it was counted or not.
func TestDuOfDamage(t *testing.T) {
	r := newRig(t)
	shared := random(600<<10, 1)
	for i, p := range []string{"1.safetensors", "2.safetensors"} {
		r.write(p, weights(t, []string{"a", "b"}, shared, random(100<<10, uint64(i))))
		r.sync()
	}
	whole := r.du("1.safetensors")
	_, m := r.manifestOf("1.safetensors")
	for _, o := range m.Objects {
		if o.List {
			r.damage(o.Digest)
		}
	}
	for range 2 {
		d := r.du("1.safetensors")
		if d.AloneBytes != whole.AloneBytes || d.StoredBytes >= whole.StoredBytes || len(d.SharedWith) != 1 {
			t.Errorf("%+v, before the damage %+v", d, whole)
		}
		r = r.reopen()
	}
}

// A prune with grace leaves what was written lately.
func TestDuYoung(t *testing.T) {
	r := newRig(t)
	clock := time.Now()
	r.now = func() time.Time { return clock }
	r.close()
	r = openRig(t, r.dir, func(o *Options) { o.Now = func() time.Time { return clock } })
	r.write("a", random(1<<20, 1))
	r.sync()
	if d := r.du("a"); d.YoungBytes != d.AloneBytes || d.AloneBytes < 1<<20 {
		t.Errorf("%+v", d)
	}
	r.prune(now) // seals the segment
	clock = clock.Add(control.DefaultGrace + time.Hour)
	r.write("b", random(1<<20, 2))
	r.sync()
	if d := r.du("a", "b"); d.YoungBytes < 1<<20 || d.YoungBytes > 3<<19 || d.AloneBytes < 2<<20 {
		t.Errorf("%+v", d)
	}
	r.unlink("a")
	r.unlink("b")
	young := r.du().YoungBytes
	p := r.prune(control.PruneOptions{Grace: control.DefaultGrace, MaxUnused: 0.5})
	if p.RoomBytes < 1<<20 || young != 0 {
		t.Errorf("%+v, and %d of nothing", p, young)
	}
}
