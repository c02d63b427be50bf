package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/sweep"
)

// remote is one whose heads are written by hand.
type remote struct {
	*testing.T
	mem *bucket.Mem
	now time.Time // the engine's
}

func newRemote(t *testing.T) *remote {
	r := &remote{T: t, now: day}
	r.mem = &bucket.Mem{Now: func() time.Time { return r.now }}
	return r
}

func (r *remote) put(key string, p []byte) {
	r.Helper()
	if _, err := r.mem.Put(context.Background(), key, bucket.Bytes(p), bucket.Cond{}); err != nil {
		r.Fatal(err)
	}
}

// object puts a data object and returns its id.
func (r *remote) object(b byte) record.ID {
	id := record.ID{b}
	r.put(record.ClassData.Key(id), []byte("data"))
	return id
}

// head writes a writer's head.
func (r *remote) head(w record.Writer, tables []record.Table, tail ...record.Entry) {
	r.Helper()
	h := &record.Head{Remote: remoteID, Instance: record.ID{2}, Commit: record.ID{3}, Sequence: 1, Clock: 100,
		Tables: tables, Tail: tail}
	p, err := h.Encode(w)
	if err != nil {
		r.Fatal(err)
	}
	r.put(record.HeadKey(w), p)
}

func (r *remote) read(w record.Writer) *record.Head {
	r.Helper()
	p, _, err := bucket.Read(context.Background(), r.mem, record.HeadKey(w), record.MaxHead, "")
	if err != nil {
		r.Fatal(err)
	}
	h, err := record.DecodeHead(w, p)
	if err != nil {
		r.Fatal(err)
	}
	return h
}

// table puts a table of w's.
func (r *remote) table(w record.Writer, b byte, entries ...record.Entry) record.Table {
	r.Helper()
	p, t, err := record.EncodeTable(w, record.ID{b}, entries)
	if err != nil {
		r.Fatal(err)
	}
	r.put(record.ClassTable.Key(t.ID), p)
	return t
}

func needs(w record.Writer, path string, version int64, id record.ID, over ...record.Replaced) record.Entry {
	return record.Entry{Path: path, Origin: w, Version: version, Over: over, File: &record.File{Size: 1,
		Manifest: cas.Hash{id[0]}, Plan: record.Ref{Object: id, Off: 64, Stored: 1}, Deps: []record.ID{id}}}
}

func gone(w record.Writer, path string, version int64, over ...record.Replaced) record.Entry {
	return record.Entry{Path: path, Kind: record.KindTombstone, Origin: w, Version: version, Over: over}
}

func (r *remote) options() sweep.Options {
	return sweep.Options{Remote: remoteID, Collector: carol, Now: func() time.Time { return time.Unix(1, 0) }}
}

func (r *remote) collect(change func(*sweep.Options)) sweep.Stats {
	r.Helper()
	o := r.options()
	if change != nil {
		change(&o)
	}
	stats, err := sweep.Collect(context.Background(), r.mem, o)
	if err != nil {
		r.Fatal(err)
	}
	return stats
}

// keys are what is there, with versions.
func (r *remote) keys(prefix string) map[string]bucket.Version {
	keys := map[string]bucket.Version{}
	for info := range r.mem.List(context.Background(), prefix, "") {
		keys[info.Key] = info.Version
	}
	return keys
}

func (r *remote) has(id record.ID) bool {
	_, ok := r.keys("d/")[record.ClassData.Key(id)]
	return ok
}

// An object goes once it was unreferenced in all collections for as long as the grace, by the engine's clock.
func TestGrace(t *testing.T) {
	r := newRemote(t)
	kept, old, back := r.object(1), r.object(2), r.object(3)
	r.head(alice, nil, needs(alice, "runs/a/f", 1, kept))
	week := func(o *sweep.Options) { o.Grace = 7 * 24 * time.Hour }
	if s := r.collect(week); s.Unreferenced.Objects != 2 || s.Listed.Objects != 3 || s.Listed.Bytes != 12 {
		t.Errorf("%+v", s)
	}
	r.now = r.now.Add(3 * 24 * time.Hour)
	r.head(alice, nil, needs(alice, "runs/a/f", 1, kept), needs(alice, "runs/a/g", 2, back))
	r.collect(week)
	r.head(alice, nil, needs(alice, "runs/a/f", 1, kept))
	r.now = r.now.Add(4*24*time.Hour - time.Second)
	r.collect(week)
	if !r.has(old) || !r.has(back) {
		t.Error("deleted before the grace was over")
	}
	r.now = r.now.Add(time.Second)
	dry := r.collect(func(o *sweep.Options) { week(o); o.DryRun = true })
	if dry.Condemned.Objects != 1 || dry.Deleted != 0 || !r.has(old) {
		t.Errorf("dry run: %+v", dry)
	}
	if s := r.collect(week); s.Condemned.Objects != 1 || s.Deleted != 1 || s.Stamped != 1 {
		t.Errorf("%+v", s)
	}
	if r.has(old) || !r.has(back) || !r.has(kept) {
		t.Errorf("deleted %v, what was referenced meanwhile %v, what is %v", !r.has(old), !r.has(back),
			!r.has(kept))
	}
	h := r.read(alice)
	if h.Stamp != 1 || (h.Commit != record.ID{3}) || h.Sequence != 1 || len(h.Tail) != 1 {
		t.Errorf("stamped: %+v", h)
	}
}

// A dry run, and a collection that finds nothing, change nothing but gc/aging.
func TestNothing(t *testing.T) {
	r := newRemote(t)
	r.object(1)
	r.head(alice, nil)
	before := r.keys("")
	r.collect(func(o *sweep.Options) { o.DryRun = true })
	if !maps.Equal(before, r.keys("")) {
		t.Errorf("a dry run changes %v to %v", before, r.keys(""))
	}
	r.collect(func(o *sweep.Options) { o.Grace = time.Second })
	after := r.keys("")
	delete(after, record.AgingKey)
	if !maps.Equal(before, after) {
		t.Errorf("nothing is past its grace, and %v becomes %v", before, after)
	}
}

// What cannot be understood is not deleted around.
func TestRefuses(t *testing.T) {
	for name, x := range map[string]struct {
		change func(r *remote)
		want   error
	}{
		"a damaged head":   {func(r *remote) { r.put(record.HeadKey(bob), []byte{1}) }, cas.ErrCorrupt},
		"an unknown head":  {func(r *remote) { r.put("heads/@new", nil) }, cas.ErrNewer},
		"a missing table":  {func(r *remote) { r.head(bob, []record.Table{hollow()}) }, bucket.ErrNotFound},
		"an unknown state": {func(r *remote) { r.put(record.StateKey, []byte("ckptstat")) }, cas.ErrCorrupt},
		"another's state": {func(r *remote) {
			p, _ := (&record.State{Remote: record.ID{8}, Epoch: 1}).Encode()
			r.put(record.StateKey, p)
		}, cas.ErrCorrupt},
		"another's head": {func(r *remote) {
			p, _ := (&record.Head{Remote: record.ID{8}, Stamp: 1}).Encode(bob)
			r.put(record.HeadKey(bob), p)
		}, cas.ErrCorrupt},
		"another's table": {func(r *remote) {
			table := r.table(bob, 7, needs(bob, "runs/a/f", 1, record.ID{1}))
			table.Entries = 2
			r.head(bob, []record.Table{table})
		}, cas.ErrCorrupt},
		"a missing epoch": {func(r *remote) {
			p, _ := (&record.State{Remote: remoteID, Epoch: 1}).Encode()
			r.put(record.StateKey, p)
		}, bucket.ErrNotFound},
	} {
		r := newRemote(t)
		id := r.object(1)
		r.head(alice, nil)
		x.change(r)
		if _, err := sweep.Collect(t.Context(), r.mem, r.options()); !errors.Is(err, x.want) {
			t.Errorf("%s: %v", name, err)
		}
		if !r.has(id) || len(r.keys(record.Epochs)) > 0 {
			t.Errorf("%s: deleted", name)
		}
	}
}

func hollow() record.Table {
	return record.Table{ID: record.ID{9}, Len: 200, Directory: 100, Entries: 1, First: "runs/a/f",
		Last: "runs/a/f"}
}

// What tables hold is needed, and the tables themselves; what is replaced is not.
func TestTables(t *testing.T) {
	r := newRemote(t)
	inTable, replaced, newer := r.object(1), r.object(2), r.object(3)
	table := r.table(alice, 7, needs(alice, "runs/a/f", 1, inTable), needs(alice, "runs/a/g", 2, replaced))
	r.head(alice, []record.Table{table})
	r.head(bob, nil, needs(bob, "runs/a/g", 3, newer, record.Replaced{Writer: alice, Version: 2}))
	stale := r.table(alice, 8, needs(alice, "runs/a/f", 1, inTable))
	s := r.collect(nil)
	if !r.has(inTable) || r.has(replaced) || !r.has(newer) {
		t.Errorf("%v", r.keys("d/"))
	}
	if s.Entries != 3 || s.Heads != 2 || s.TakenOut != 0 {
		t.Errorf("%+v", s)
	}
	tables := r.keys("t/")
	if tables[record.ClassTable.Key(table.ID)] == "" || tables[record.ClassTable.Key(stale.ID)] != "" {
		t.Errorf("%v", tables)
	}
	if len(r.read(bob).Tail) != 1 {
		t.Error("what covers an entry of a table is taken out")
	}
}

// Of writers that are idle what may go is taken out with the stamps: first what is replaced, then what
// replaced it.
func TestTakesOut(t *testing.T) {
	r := newRemote(t)
	r.head(alice, nil, needs(alice, "runs/a/f", 1, r.object(1)))
	r.head(bob, nil, gone(bob, "runs/a/f", 2, record.Replaced{Writer: alice, Version: 1}))
	if s := r.collect(nil); s.TakenOut != 1 || len(r.read(alice).Tail) != 0 || len(r.read(bob).Tail) != 1 {
		t.Errorf("%+v: %+v, %+v", s, r.read(alice), r.read(bob))
	}
	r.object(2)
	if s := r.collect(nil); s.TakenOut != 1 || len(r.read(bob).Tail) != 0 {
		t.Errorf("%+v: %+v", s, r.read(bob))
	}
}

// A collection that finds an epoch which is not published, or not decided, finishes it, and has its own.
func TestLeftBehind(t *testing.T) {
	for _, published := range []bool{false, true} {
		r := newRemote(t)
		kept, old, left := r.object(1), r.object(2), r.object(3)
		r.head(alice, nil, needs(alice, "runs/a/f", 1, kept))
		e := &record.Epoch{Remote: remoteID, Number: 1, Collector: dan,
			Objects: []record.Key{{Class: record.ClassData, ID: kept}, {Class: record.ClassData, ID: left}}}
		p, err := e.Encode()
		must(err)
		r.put(record.EpochKey(1), p)
		if published {
			p, err := (&record.State{Remote: remoteID, Epoch: 1}).Encode()
			must(err)
			r.put(record.StateKey, p)
		}
		s := r.collect(nil)
		if !r.has(kept) || r.has(old) || r.has(left) || s.Deleted != 2 || r.read(alice).Stamp != 2 {
			t.Errorf("published %v: %+v", published, s)
		}
	}
}

// Epochs are kept for a time, and the newest for ever.
func TestForget(t *testing.T) {
	r := newRemote(t)
	r.head(alice, nil)
	month := func(o *sweep.Options) { o.Keep = 30 * 24 * time.Hour }
	for b := range byte(3) {
		r.object(b + 1)
		r.collect(month)
		r.now = r.now.Add(20 * 24 * time.Hour)
	}
	want := []string{record.EpochKey(2), record.EpochKey(3)}
	if got := slices.Sorted(maps.Keys(r.keys(record.Epochs))); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if len(r.keys("d/")) > 0 {
		t.Errorf("left %v", r.keys("d/"))
	}
}

// What a collection asks for where there are 1,000 writers: of each head four GETs, of which two are answered
// with nothing if it is as before, and one PUT; and nothing that grows with names or objects but pages of
// listings, and of deletions.
func TestManyWriters(t *testing.T) {
	r := newRemote(t)
	const writers, garbage = 1000, 2500
	for i := range writers {
		w := record.Writer(fmt.Sprintf("writer.%08x", i))
		id := record.ID{1, byte(i), byte(i >> 8)}
		r.put(record.ClassData.Key(id), []byte("data"))
		r.head(w, nil, needs(w, "runs/"+string(w)+"/f", 1, id))
	}
	for i := range garbage {
		r.put(record.ClassData.Key(record.ID{2, byte(i), byte(i >> 8)}), []byte("data"))
	}
	counted := &asked{Bucket: r.mem, n: map[string]int{}}
	s, err := sweep.Collect(t.Context(), counted, r.options())
	if err != nil || s.Deleted != garbage || s.Stamped != writers {
		t.Fatal(s, err)
	}
	sums := map[string]int{}
	for what, n := range counted.n {
		kind, key, _ := strings.Cut(what, " ")
		if strings.HasPrefix(key, record.Heads) && kind != "list" {
			kind += " head"
		}
		sums[kind] += n
	}
	pages := (writers+garbage+999)/1000 + 3 // and those of the classes of which there is no object
	want := map[string]int{"get head": 4 * writers, "put head": writers, "list": 3*1 + pages + 1,
		"get": 3, "put": 4, "delete": (garbage + 999) / 1000}
	if !maps.Equal(sums, want) {
		t.Errorf("%v, want %v", sums, want)
	}
	counted.n = map[string]int{}
	if _, err := sweep.Collect(t.Context(), counted, r.options()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for what, times := range counted.n {
		if strings.HasPrefix(what, "get "+record.Heads) {
			n += times
		}
	}
	if n != writers {
		t.Errorf("with nothing to delete %d heads are read", n)
	}
}
