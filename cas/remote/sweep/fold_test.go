package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/sweep"
)

const month = 30 * 24 * time.Hour

// at writes a head whose last commit was made at a time.
func (r *remote) at(when time.Time, w record.Writer, tables []record.Table, tail ...record.Entry) {
	r.Helper()
	p, err := (&record.Head{Remote: remoteID, Instance: record.ID{2}, Commit: record.ID{3}, Sequence: 1,
		Clock: 100, Time: when.UnixNano(), Tables: tables, Tail: tail}).Encode(w)
	must(err)
	r.put(record.HeadKey(w), p)
}

func (r *remote) fold() sweep.Stats {
	r.Helper()
	return r.collect(func(o *sweep.Options) {
		o.Fold = month
		o.Now = func() time.Time { return r.now }
	})
}

// shown is what has a name, and what is in conflict with it, in all heads.
func (r *remote) shown() (all []string) {
	r.Helper()
	var lists [][]record.Entry
	for key := range r.keys(record.Heads) {
		w, _ := record.ParseHead(key)
		h := r.read(w)
		lists = append(lists, h.Tail)
		for _, t := range h.Tables {
			p, _, err := bucket.Read(r.Context(), r.mem, record.ClassTable.Key(t.ID), record.MaxObject, "")
			must(err)
			entries, _, err := record.DecodeTable(w, t.ID, p)
			must(err)
			lists = append(lists, entries)
		}
	}
	for path, held := range names.Paths(lists...) {
		m := names.Merge(held)
		for _, e := range append([]*record.Entry{m.Name}, m.Conflicts...) {
			if e != nil {
				all = append(all, fmt.Sprint(path, e.Origin, e.Version, e.File != nil &&
					!e.File.Manifest.IsZero()))
			}
		}
	}
	return all
}

// What a writer holds that was idle for a month moves to @archive, from tail and tables; what others see
// stays as it is, and so do writers that are not idle. The head goes after three months more.
func TestFold(t *testing.T) {
	r := newRemote(t)
	inTail, inTable, other := r.object(1), r.object(2), r.object(3)
	table := r.table(alice, 7, needs(alice, "runs/a/f", 1, inTable), gone(alice, "runs/a/g", 2,
		record.Replaced{Writer: bob, Version: 1}), needs(alice, "runs/a/h", 3, r.object(4)))
	r.at(day.Add(-month), alice, []record.Table{table}, needs(alice, "runs/a/h", 5, inTail))
	covered := []record.Table{r.table(bob, 8, needs(bob, "runs/a/g", 1, other))}
	r.at(day.Add(-month+time.Second), bob, covered)
	r.put(record.HeadKey(carol), nil)
	before := r.shown()
	if s := r.fold(); s.Folded != 1 {
		t.Errorf("%+v", s)
	}
	if got := r.shown(); !slices.Equal(got, before) {
		t.Errorf("%v, and %v before", got, before)
	}
	a, h := r.read(alice), r.read(record.ArchiveWriter)
	if !a.Folded || a.Sequence != 2 || (a.Commit == record.ID{3}) || a.Clock != 100 {
		t.Errorf("%+v", a)
	}
	if len(h.Tail) != 3 || h.Stamp != 1 || h.Sequence != 1 || h.Clock != 5 {
		t.Errorf("%+v", h)
	}
	if b := r.read(bob); b.Folded || len(b.Tables) != 1 {
		t.Errorf("%+v", b)
	}
	r.now = r.now.Add(90*24*time.Hour - time.Second)
	r.at(r.now, bob, covered)
	r.fold()
	r.read(alice)
	r.now = r.now.Add(time.Second)
	r.fold()
	if r.keys(record.Heads)[record.HeadKey(alice)] != "" {
		t.Error("the folded head stays")
	}
	if got := r.shown(); !slices.Equal(got, before) || !r.has(inTail) || !r.has(inTable) ||
		r.has(record.ID{4}) {
		t.Errorf("%v, and %v before; %v", got, before, r.keys("d/"))
	}
	// @archive is not folded itself.
	r.now = r.now.Add(2 * month)
	r.fold()
	if got := r.shown(); !slices.Equal(got, before) || len(r.read(record.ArchiveWriter).Tail) < 3 {
		t.Errorf("%v, and %v before", got, before)
	}
}

// What does not fit into a head becomes tables.
func TestFoldsIntoTables(t *testing.T) {
	r := newRemote(t)
	var entries []record.Entry
	for i := range 3_000 {
		entries = append(entries, needs(alice, fmt.Sprintf("runs/a/%0200d", i), int64(i+1), r.object(1)))
	}
	r.at(day.Add(-month), alice, []record.Table{r.table(alice, 7, entries...)})
	r.at(day.Add(-month), bob, nil, needs(bob, "runs/b", 1, r.object(2)))
	before := r.shown()
	if s := r.fold(); s.Folded != 2 {
		t.Errorf("%+v", s)
	}
	h := r.read(record.ArchiveWriter)
	if got := r.shown(); !slices.Equal(got, before) || len(h.Tables) != 1 || len(h.Tail) != 1 {
		t.Errorf("%d names, and %d before; %d tables, %d in the tail", len(got), len(before), len(h.Tables),
			len(h.Tail))
	}
}

// A writer one of whose objects an epoch names is folded another time.
func TestFoldObeysEpochs(t *testing.T) {
	r := newRemote(t)
	id := r.object(1)
	r.at(day.Add(-month), alice, nil, needs(alice, "runs/a/f", 1, id))
	p, err := (&record.Epoch{Remote: remoteID, Number: 1, Deleted: true, Collector: dan,
		Objects: []record.Key{{Class: record.ClassData, ID: id}}}).Encode()
	must(err)
	r.put(record.EpochKey(1), p)
	p, err = (&record.State{Remote: remoteID, Epoch: 1}).Encode()
	must(err)
	r.put(record.StateKey, p)
	if s := r.fold(); s.Folded != 0 || r.read(alice).Folded {
		t.Errorf("%+v", s)
	}
}

// A fold that ends at any request, with the answer lost or not, loses nothing, and the next one ends it.
func TestFoldEnds(t *testing.T) {
	for n := 0; ; n++ {
		r := newRemote(t)
		r.at(day.Add(-month), alice, nil, needs(alice, "runs/a/f", 1, r.object(1)),
			gone(alice, "runs/a/g", 2, record.Replaced{Writer: bob, Version: 1}))
		r.at(day.Add(-month), bob, nil, needs(bob, "runs/a/g", 1, r.object(2)))
		before := r.shown()
		o := r.options()
		o.Fold, o.Grace = month, time.Hour
		b := &mortal{Bucket: r.mem, left: n / 2, after: n%2 == 1}
		_, err := sweep.Collect(t.Context(), b, o)
		if err == nil {
			if n < 20 {
				t.Errorf("%d requests", n/2)
			}
			return
		}
		if got := r.shown(); !slices.Equal(got, before) {
			t.Fatalf("after %d requests: %v, and %v before", n/2, got, before)
		}
		if s := r.fold(); !r.read(alice).Folded || !r.read(bob).Folded {
			t.Fatalf("after %d requests: %+v", n/2, s)
		}
		if got := r.shown(); !slices.Equal(got, before) {
			t.Fatalf("after %d requests and another fold: %v, and %v before", n/2, got, before)
		}
	}
}

var errDied = errors.New("died")

// mortal is a bucket that ends after some requests; after: it does the last one, and says nothing of it.
type mortal struct {
	bucket.Bucket
	left  int
	after bool
}

func (m *mortal) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	if m.left--; m.left < 0 && !m.after {
		return "", errDied
	}
	v, err := m.Bucket.Put(ctx, key, body, cond)
	if m.left < 0 {
		return "", errDied
	}
	return v, err
}

func (m *mortal) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	r io.ReadCloser, info bucket.Info, err error) {
	if m.left--; m.left < 0 {
		return nil, info, errDied
	}
	return m.Bucket.Get(ctx, key, off, n, unless)
}

// What a tombstone tells of stays until one of its objects is condemned, or it is past the grace.
func TestForgetsRemoved(t *testing.T) {
	tomb := func(path string, e record.Entry, since time.Time) record.Entry {
		was := needs(alice, path, 1, record.ID{9})
		was.File = e.File
		t := gone(alice, path, 2)
		t.Removed = &record.Removed{Time: since.UnixNano(), Entry: was}
		return t
	}
	r := newRemote(t)
	live, dead := r.object(1), r.object(2)
	inline := record.Entry{File: &record.File{Size: 1, Inline: "x"}}
	recent := day.Add(-time.Hour + 2*time.Second)
	r.head(alice, nil, tomb("runs/a/1", needs(alice, "", 1, live), recent),
		tomb("runs/a/2", needs(alice, "", 1, dead), recent),
		tomb("runs/a/3", inline, recent), tomb("runs/a/4", inline, day.Add(-time.Hour)),
		needs(alice, "runs/a/5", 3, live))
	r.collect(func(o *sweep.Options) { o.Grace = 0 }) // condemns dead, and everything is past no grace
	var left []string
	for _, e := range r.read(alice).Tail {
		left = append(left, e.Path)
	}
	if !slices.Equal(left, []string{"runs/a/5"}) || r.has(dead) {
		t.Errorf("%v", left)
	}

	r = newRemote(t)
	live, dead = r.object(1), r.object(2)
	r.head(alice, nil, tomb("runs/a/1", needs(alice, "", 1, live), recent),
		tomb("runs/a/2", needs(alice, "", 1, dead), recent),
		tomb("runs/a/3", inline, recent), tomb("runs/a/4", inline, day.Add(-time.Hour)),
		needs(alice, "runs/a/5", 3, live))
	hour := func(o *sweep.Options) { o.Grace = time.Hour }
	r.now = day.Add(-2 * time.Hour)
	r.collect(hour) // notes that dead is not needed
	r.now = day
	r.collect(hour)
	left = nil
	for _, e := range r.read(alice).Tail {
		left = append(left, e.Path)
	}
	if !slices.Equal(left, []string{"runs/a/1", "runs/a/3", "runs/a/5"}) || r.has(dead) || !r.has(live) {
		t.Errorf("%v", left)
	}
}

// Tables of @archive become one where there are many of like size, and nothing that they have goes by that.
func TestArchiveMerges(t *testing.T) {
	r := newRemote(t)
	for i := range 8 {
		w := record.Writer(fmt.Sprintf("writer.%08x", i))
		var entries []record.Entry
		for k := range 2_000 {
			path := fmt.Sprintf("runs/%d/%s", (i+k)%5, cas.Sum([]byte{byte(i), byte(k), byte(k >> 8)}))
			entries = append(entries, needs(w, path, int64(k+1), r.object(byte(i+1))))
		}
		slices.SortFunc(entries, func(a, b record.Entry) int { return a.Compare(&b, w) })
		r.at(day.Add(-month), w, []record.Table{r.table(w, byte(i+10), entries...)})
		before := r.shown()
		if s := r.fold(); s.Folded != 1 {
			t.Fatalf("%+v", s)
		}
		if got := r.shown(); !slices.Equal(got, before) || len(got) != 2_000*(i+1) {
			t.Errorf("%d names, and %d before", len(got), len(before))
		}
		if n := len(r.read(record.ArchiveWriter).Tables); n > 4 {
			t.Errorf("%d tables after %d folds", n, i+1)
		}
	}
	r.now = r.now.Add(month)
	r.collect(nil)
	r.now = r.now.Add(month)
	before := r.shown()
	r.collect(nil)
	if got := r.shown(); !slices.Equal(got, before) || len(r.keys(record.ClassTable.Prefix())) > 4 {
		t.Errorf("%d names, and %d before; %d tables", len(got), len(before),
			len(r.keys(record.ClassTable.Prefix())))
	}
}

// A collection with nothing to delete reads heads once, to fold them too.
func TestFoldMarksOnce(t *testing.T) {
	r := newRemote(t)
	r.at(day.Add(-month), alice, nil, needs(alice, "runs/a/f", 1, r.object(1)))
	r.at(day, bob, nil, needs(bob, "runs/b/f", 1, r.object(2)))
	counted := &asked{Bucket: r.mem, n: map[string]int{}}
	o := r.options()
	o.Fold = month
	s, err := sweep.Collect(t.Context(), counted, o)
	if err != nil || s.Folded != 1 {
		t.Fatal(s, err)
	}
	if counted.n["list "+record.Heads] != 1 || counted.n["get "+record.HeadKey(bob)] != 1 {
		t.Errorf("%v", counted.n)
	}
}

// asked counts requests.
type asked struct {
	bucket.Bucket
	n map[string]int
}

func (a *asked) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	a.n["get "+key]++
	return a.Bucket.Get(ctx, key, off, n, unless)
}

func (a *asked) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	a.n["put "+key]++
	return a.Bucket.Put(ctx, key, body, cond)
}

func (a *asked) Delete(ctx context.Context, keys []string) error {
	a.n["delete"] += (len(keys) + 999) / 1000
	return a.Bucket.Delete(ctx, keys)
}

func (a *asked) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		n := 0
		for info, err := range a.Bucket.List(ctx, prefix, after) {
			if n%1000 == 0 {
				a.n["list "+prefix]++
			}
			if n++; !yield(info, err) {
				return
			}
		}
		if n == 0 {
			a.n["list "+prefix]++
		}
	}
}
