package mend_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/mend"
	"ckptfs/cas/remote/objects/objectstest"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/sweep"
	"ckptfs/cas/remote/writer"
)

var remoteID = record.ID{1}

// rig is a remote with one writer.
type rig struct {
	*testing.T
	mem   bucket.Mem
	local *objectstest.Store
	state *writer.Mem
	w     *writer.Writer
	base  cas.Hash
	id    record.Writer
	kept  *record.Head // as it was committed last
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, local: objectstest.New(1), state: &writer.Mem{}}
	r.base = r.local.Alone(cas.Chunk, 40<<10)
	r.w = r.writer()
	return r
}

func (r *rig) writer() *writer.Writer {
	return writer.New(writer.Options{Bucket: &r.mem, Remote: remoteID, State: r.state, Now: time.Now,
		Parallel: 1,
		Random:   rand.NewChaCha8([32]byte{byte(rand.Uint32())}),
		Register: func(ctx context.Context) (record.Writer, error) {
			return remote.Register(ctx, &r.mem, "alice")
		}})
}

func (r *rig) file(path string, chunk cas.Hash) record.Entry {
	m := r.local.File(nil, []cas.Hash{r.base, chunk})
	c, err := r.local.Closure(m)
	if err != nil {
		r.Fatal(err)
	}
	return record.Entry{Path: path, Mode: 0o644, File: &record.File{Size: c.Size, Manifest: m}}
}

func (r *rig) push(entries ...record.Entry) error {
	res, err := r.w.Push(r.Context(), r.local, writer.Changes{Entries: entries})
	if err == nil {
		r.id, r.kept = res.Writer, res.Head
	}
	return err
}

func (r *rig) pushed(path string) {
	r.Helper()
	if err := r.push(r.file(path, r.local.Delta(cas.Chunk, 100, r.base))); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) run(change func(*mend.Options)) *mend.Report {
	r.Helper()
	o := mend.Options{Remote: remoteID, Kept: map[record.Writer]*record.Head{r.id: r.kept}, Now: time.Now,
		Random: rand.NewChaCha8([32]byte{9})}
	if change != nil {
		change(&o)
	}
	rep, err := mend.Run(r.Context(), &r.mem, o)
	if err != nil {
		r.Fatal(err)
	}
	return rep
}

// key is that of the writer's head.
func (r *rig) key() string { return record.HeadKey(r.id) }

func (r *rig) bytes(key string) []byte {
	r.Helper()
	p, _, err := bucket.Read(r.Context(), &r.mem, key, record.MaxObject, "")
	if err != nil {
		r.Fatal(err)
	}
	return p
}

func (r *rig) put(key string, p []byte) {
	r.Helper()
	if _, err := r.mem.Put(r.Context(), key, bucket.Bytes(p), bucket.Cond{}); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) remove(key string) {
	r.Helper()
	if err := r.mem.Delete(r.Context(), []string{key}); err != nil {
		r.Fatal(err)
	}
}

// names are the paths of the head, with tables; every file of it can be read.
func (r *rig) names() (paths []string) {
	r.Helper()
	h, err := record.DecodeHead(r.id, r.bytes(r.key()))
	if err != nil {
		r.Fatal(err)
	}
	entries := h.Tail
	for _, t := range h.Tables {
		list, _, err := record.DecodeTable(r.id, t.ID, r.bytes(record.ClassTable.Key(t.ID)))
		if err != nil {
			r.Fatal(err)
		}
		entries = append(entries, list...)
	}
	for _, e := range entries {
		if e.Kind == record.KindTombstone {
			continue
		}
		paths = append(paths, strings.TrimPrefix(e.Path, "runs/a/"))
		if e.File != nil && !e.File.Manifest.IsZero() {
			if err := r.local.Read(r.Context(), &r.mem, e.File); err != nil {
				r.Errorf("%s: %v", e.Path, err)
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func (r *rig) namesAre(want ...string) {
	r.Helper()
	if got := r.names(); !slices.Equal(got, want) {
		r.Errorf("%v, want %v", got, want)
	}
}

// A sound remote is left as it is.
func TestSound(t *testing.T) {
	r := newRig(t)
	r.pushed("runs/a/1")
	before := r.bytes(r.key())
	if rep := r.run(nil); len(rep.Mended)+len(rep.Orphans)+len(rep.Lost)+len(rep.Revive) > 0 ||
		string(before) != string(r.bytes(r.key())) {
		t.Errorf("%+v", rep)
	}
}

// A head that was removed, damaged, emptied, or put back to an earlier version is as it was committed last,
// and its writer, which refused to commit, goes on under its name.
func TestPutBack(t *testing.T) {
	for name, harm := range map[string]func(r *rig, early []byte){
		"gone":    func(r *rig, _ []byte) { r.remove(r.key()) },
		"earlier": func(r *rig, early []byte) { r.put(r.key(), early) },
		"empty":   func(r *rig, _ []byte) { r.put(r.key(), nil) },
		"damaged": func(r *rig, early []byte) { r.put(r.key(), append(early, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.pushed("runs/a/1")
			early := r.bytes(r.key())
			r.pushed("runs/a/2")
			r.pushed("runs/a/3")
			last := r.bytes(r.key())
			harm(r, slices.Clone(early))
			r.w = r.writer() // a new process
			if name == "earlier" || name == "empty" {
				if err := r.push(r.file("runs/a/4", r.base)); !errors.Is(err, writer.ErrRolledBack) {
					t.Fatalf("pushed upon it: %v", err)
				}
			}
			rep := r.run(nil)
			if len(rep.Mended) != 1 || !rep.Mended[0].Same || rep.Mended[0].Sequence != 3 {
				t.Fatalf("%+v", rep)
			}
			if string(r.bytes(r.key())) != string(last) {
				t.Error("it is another one than it was")
			}
			if rep := r.run(nil); len(rep.Mended) > 0 {
				t.Errorf("mended again: %+v", rep)
			}
			was := r.id
			r.pushed("runs/a/4")
			if r.id != was {
				t.Errorf("registered as %s", r.id)
			}
			r.namesAre("1", "2", "3", "4")
		})
	}
}

// Where nothing is known but commit records, heads are made from these if that is asked for, and the writer
// registers again.
func TestFromCommits(t *testing.T) {
	r := newRig(t)
	r.pushed("runs/a/1")
	r.pushed("runs/a/2")
	r.remove(r.key())
	rep := r.run(func(o *mend.Options) { o.Kept = nil })
	if len(rep.Mended) > 0 || len(rep.Orphans) != 1 || rep.Orphans[0].Commits != 2 ||
		rep.Orphans[0].Writer != r.id {
		t.Fatalf("%+v", rep)
	}
	rep = r.run(func(o *mend.Options) { o.Kept, o.From = nil, []record.Writer{r.id} })
	if len(rep.Mended) != 1 || rep.Mended[0].Same || rep.Mended[0].Entries != 2 {
		t.Fatalf("%+v", rep)
	}
	r.namesAre("1", "2")
	var again *writer.RegisteredError
	if err := r.push(r.file("runs/a/3", r.base)); !errors.As(err, &again) {
		t.Errorf("pushed: %v", err)
	}
	r.namesAre("1", "2")
}

// A head without a table has of it what commit records say; what was kept may be older than these.
func TestWithoutTable(t *testing.T) {
	r := newRig(t)
	for i := range 4 {
		long := strings.Repeat("x", 60<<10)
		r.pushed(fmt.Sprintf("runs/a/%d", i))
		if err := r.push(record.Entry{Path: "runs/a/d", Kind: record.KindFolder,
			Attrs: []record.Attr{{Name: "user.a", Value: long + fmt.Sprint(i)}, {Name: "user.b", Value: long},
				{Name: "user.c", Value: long}}}); err != nil {
			t.Fatal(err)
		}
	}
	r.remove(record.ClassTable.Key(r.kept.Tables[0].ID))
	rep := r.run(nil)
	if len(rep.Mended) != 1 || rep.Mended[0].Same || len(rep.Lost) > 0 {
		t.Fatalf("%+v", rep)
	}
	got := r.names()
	for i := range 4 {
		if !slices.Contains(got, fmt.Sprint(i)) {
			t.Errorf("%v", got)
		}
	}
}

// What another line of commits had, of a copied disk, is kept, too.
func TestUnion(t *testing.T) {
	r := newRig(t)
	r.pushed("runs/a/1")
	early, state := r.bytes(r.key()), r.state.Clone()
	r.pushed("runs/a/2")
	r.pushed("runs/a/3")
	kept := r.kept
	r.put(r.key(), early)
	r.state = state
	r.w = r.writer()
	r.pushed("runs/a/other")
	rep := r.run(func(o *mend.Options) { o.Kept[r.id] = kept })
	if len(rep.Mended) != 1 || rep.Mended[0].Same {
		t.Fatalf("%+v", rep)
	}
	r.namesAre("1", "2", "3", "other")
}

// What a collector deleted while the head was missing is named as lost; what it condemned is to be published
// again; neither is in the head. What they were over stays covered.
func TestCondemned(t *testing.T) {
	r := newRig(t)
	r.pushed("runs/a/1")
	r.pushed("runs/a/2")
	ids := map[record.ID]record.Class{}
	over := []record.Replaced{{Writer: "bob.00000002", Version: 1}}
	for i := range r.kept.Tail {
		r.kept.Tail[i].Over = over
	}
	for _, id := range r.kept.Tail[1].File.Deps {
		if !slices.Contains(r.kept.Tail[0].File.Deps, id) {
			ids[id] = record.ClassMeta
		}
	}
	e := &record.Epoch{Remote: remoteID, Number: 1, Collector: "carol.00000003"}
	for id, class := range ids {
		e.Objects = append(e.Objects, record.Key{Class: class, ID: id})
	}
	slices.SortFunc(e.Objects, record.Key.Compare)
	p, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r.put(record.EpochKey(1), p)
	if p, err = (&record.State{Remote: remoteID, Epoch: 1}).Encode(); err != nil {
		t.Fatal(err)
	}
	r.put(record.StateKey, p)
	r.remove(r.key())
	rep := r.run(nil)
	if len(rep.Revive) != 1 || rep.Revive[0].Path != "runs/a/2" || len(rep.Lost) > 0 || rep.Mended[0].Same {
		t.Fatalf("%+v", rep)
	}
	r.namesAre("1")
	h, err := record.DecodeHead(r.id, r.bytes(r.key()))
	if err != nil || h.Stamp != 1 || !slices.Equal(h.Find("runs/a/2")[0].Over, over) {
		t.Errorf("%+v, %v", h, err)
	}

	r = newRig(t)
	r.pushed("runs/a/1")
	r.put(record.HeadKey("bob.00000002"), nil)
	r.remove(r.key())
	if _, err := sweep.Collect(t.Context(), &r.mem, sweep.Options{Remote: remoteID,
		Collector: "carol.00000003",
		Now:       time.Now}); err != nil {
		t.Fatal(err)
	}
	rep = r.run(nil)
	if len(rep.Lost) != 1 || rep.Lost[0].Path != "runs/a/1" || rep.Lost[0].Writer != r.id {
		t.Fatalf("%+v", rep)
	}
	r.namesAre()
}

// gc/state that was put back itself stops all.
func TestStatePutBack(t *testing.T) {
	r := newRig(t)
	r.pushed("runs/a/1")
	r.kept.Stamp = 7
	r.remove(r.key())
	if _, err := mend.Run(t.Context(), &r.mem, mend.Options{Remote: remoteID, Now: time.Now,
		Kept: map[record.Writer]*record.Head{r.id: r.kept}}); !errors.Is(err, cas.ErrCorrupt) ||
		!strings.Contains(err.Error(), record.StateKey) {
		t.Error(err)
	}
}

// An epoch of another remote stops all: what was condemned here is not known.
func TestForeignEpoch(t *testing.T) {
	r := newRig(t)
	r.pushed("runs/a/1")
	r.remove(r.key())
	for key, encode := range map[string]func() ([]byte, error){
		record.StateKey: (&record.State{Remote: remoteID, Epoch: 1}).Encode,
		record.EpochKey(1): (&record.Epoch{Remote: record.ID{2}, Number: 1, Collector: "carol.00000003",
			Objects: []record.Key{{Class: record.ClassMeta, ID: record.ID{7}}}}).Encode,
	} {
		p, err := encode()
		if err != nil {
			t.Fatal(err)
		}
		r.put(key, p)
	}
	if _, err := mend.Run(t.Context(), &r.mem, mend.Options{Remote: remoteID, Now: time.Now,
		Kept: map[record.Writer]*record.Head{r.id: r.kept}}); !errors.Is(err, cas.ErrCorrupt) ||
		!strings.Contains(err.Error(), record.EpochKey(1)) {
		t.Error(err)
	}
}
