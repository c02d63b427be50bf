package writer

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

const (
	me  = record.Writer("test.00000001")
	you = record.Writer("you.00000002")
)

func over(e record.Entry, pairs ...any) record.Entry {
	for i := 0; i < len(pairs); i += 2 {
		w, version := pairs[i].(record.Writer), pairs[i+1].(int)
		e.Over = append(e.Over, record.Replaced{Writer: w, Version: int64(version)})
	}
	return e
}

// Four tails that are full become tables, and these one; four of those one again. No entry is lost.
func TestMerge(t *testing.T) {
	mem := &bucket.Mem{}
	r := newRig(t, mem, 1)
	var all []record.Entry
	for i, want := range []int{1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5, 3, 4, 5, 6, 1, 2} {
		entries := full(fmt.Sprintf("%c", 'a'+i))
		if i > 0 {
			entries = append(entries, tombstone(fmt.Sprintf("runs/a/%c/%02d", 'a'+i-1, i)))
		}
		res := r.mustPush(entries...)
		for _, e := range entries {
			if e.Kind == record.KindTombstone {
				for k := range all {
					if all[k].Path == e.Path {
						all[k] = e
					}
				}
				continue
			}
			all = append(all, e)
		}
		if n := len(res.Head.Tables); n != want || len(res.Head.Tail) != 0 {
			t.Fatalf("push %d: %d tables, want %d", i, n, want)
		}
		if i%5 == 0 {
			r.restart()
		}
	}
	r.check(all...)
}

// A table whose answer was lost, and one that did not come.
func TestTableFaults(t *testing.T) {
	for _, what := range []fault{lost, never, delayed, conflict, again} {
		f := &faulty{Bucket: &bucket.Mem{}}
		r := newRig(t, f, 1)
		r.mustPush(inline("runs/a/0", ""))
		f.once("put", "t/", what)
		r.mustPush(full("2")...)
		f.settle()
		r.check(append(full("2"), inline("runs/a/0", ""))...)
	}
}

// Entries that need more than one table, and more runs than the begin of a head holds.
func TestLargePushes(t *testing.T) {
	if testing.Short() {
		t.Skip()
	}
	r := newRig(t, &bucket.Mem{}, 1)
	var entries []record.Entry
	text := strings.Repeat("x", 2048)
	for i := range 33_000 {
		entries = append(entries, inline(fmt.Sprintf("runs/a/%05d", i), text))
	}
	// With a meta object, so that there are commit records: more than one.
	entries = append(entries, fileOf("runs/b", r.store.Simple(1, 100)))
	tables := r.mustPush(entries...).Head.Tables
	if len(tables) != 2 || tables[0].Last >= tables[1].First {
		t.Errorf("%+v", tables)
	}
	var runs []record.Entry
	for i := range 400 {
		runs = append(runs, inline(fmt.Sprintf("runs/%s%03d/x", strings.Repeat("r", 60), i), ""))
	}
	if res := r.mustPush(runs...); len(res.Head.Tables) != 3 {
		t.Errorf("%d tables", len(res.Head.Tables))
	}
	r.check(append(entries, runs...)...)
}

// A table that is damaged or gone is told, and nothing is committed.
func TestTableLost(t *testing.T) {
	for name, change := range map[string]func(p []byte) []byte{
		"gone": nil, "block": func(p []byte) []byte { p[5]++; return p },
		"directory": func(p []byte) []byte { p[len(p)-70]++; return p },
		"short":     func(p []byte) []byte { return p[:len(p)-1] },
	} {
		mem := &bucket.Mem{}
		r := newRig(t, mem, 1)
		r.mustPush(full("2")...)
		key := keys(t, mem, "t/")[0].Key
		p, _, err := bucket.Read(t.Context(), mem, key, record.MaxObject, "")
		if err != nil {
			t.Fatal(err)
		}
		if change == nil {
			err = mem.Delete(t.Context(), []string{key})
		} else {
			collector{t, mem}.put(key, change(p))
		}
		if err != nil {
			t.Fatal(err)
		}
		r.restart()
		_, err = r.push(inline("runs/a/9", ""))
		if (change == nil) != errors.Is(err, bucket.ErrNotFound) || err == nil {
			t.Errorf("%s: %v", name, err)
		}
		if h, _ := r.getHead(t); h.Sequence != 1 {
			t.Errorf("%s: committed", name)
		}
	}
}

func (r *rig) getHead(t *testing.T) (*record.Head, bucket.Version) {
	h, v, err := r.w.getHead(t.Context(), r.w.id.Writer)
	if err != nil {
		t.Fatal(err)
	}
	return h, v
}

// An entry goes on covering what the own one before it did, in the tail and in tables, and whoever wrote it.
func TestOver(t *testing.T) {
	mem := &bucket.Mem{}
	r := newRig(t, mem, 1)
	r.mustPush(over(inline("runs/a/1", "a"), you, 7))
	if res := r.mustPush(inline("runs/a/1", "b")); !reflect.DeepEqual(res.Head.Tail[0].Over,
		[]record.Replaced{{Writer: you, Version: 7}}) || res.Version != 9 {
		t.Errorf("%+v", res.Head)
	}
	own := r.mustPush(full("2")...).Writer
	for i, restart := range []bool{false, true} {
		if restart {
			r.restart()
		}
		res := r.mustPush(over(tombstone("runs/a/1"), me, 3+i, you, 5, own, 1))
		want := []record.Replaced{{Writer: me, Version: int64(3 + i)}, {Writer: you, Version: 7}}
		if got := res.Head.Tail[0]; !reflect.DeepEqual(got.Over, want) || got.Kind != record.KindTombstone {
			t.Errorf("%+v", got)
		}
		r.mustPush(full(fmt.Sprint("gone", i))...)
	}
}

// The clock passes all that was seen.
func TestClock(t *testing.T) {
	r := newRig(t, &bucket.Mem{}, 1)
	push := func(ch Changes) Result {
		res, err := r.w.Push(t.Context(), r.store, ch)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for i, c := range []struct {
		ch   Changes
		want int64
	}{
		{Changes{Seen: 40, Entries: []record.Entry{inline("runs/a", "")}}, 41},
		{Changes{Seen: 3, Entries: []record.Entry{inline("runs/b", "")}}, 42},
		{Changes{Entries: []record.Entry{over(inline("runs/c", ""), you, 90)}}, 91},
	} {
		if res := push(c.ch); res.Version != c.want || res.Head.Clock != c.want ||
			res.Head.Find(c.ch.Entries[0].Path)[0].Version != c.want {
			t.Errorf("%d: %+v, want %d", i, res, c.want)
		}
	}
}

// What is replaced goes, but not what it covers, nor what would come to light in a table.
func TestGoneEntries(t *testing.T) {
	mem := &bucket.Mem{}
	r := newRig(t, mem, 1)
	r.mustPush(inline("runs/a/1", "a"), over(inline("runs/a/2", "b"), you, 3), tombstone("runs/a/3"),
		over(tombstone("runs/a/4"), you, 1))
	gone := func(g ...Gone) Result {
		t.Helper()
		res, err := r.w.Push(t.Context(), nil, Changes{Gone: g})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := gone(Gone{"runs/a/1", 3, false}, Gone{"runs/a/9", 4, true}); !res.Commit.IsZero() {
		t.Errorf("%+v", res)
	}
	res := gone(Gone{"runs/a/1", 4, false}, Gone{"runs/a/2", 4, false}, Gone{"runs/a/3", 4, false},
		Gone{"runs/a/4", 4, false})
	r.check(tombstone("runs/a/2"), tombstone("runs/a/4"))
	if e := res.Head.Tail[0]; e.Version != 4 || len(e.Over) != 1 || e.File != nil || res.Head.Sequence != 2 {
		t.Errorf("%+v", e)
	}
	if res := gone(Gone{"runs/a/2", 4, false}); !res.Commit.IsZero() {
		t.Errorf("%+v", res)
	}
	gone(Gone{"runs/a/2", 4, true}, Gone{"runs/a/4", 4, true})
	r.check()
	// One that a table has, too.
	r.mustPush(append(full("2"), inline("runs/a/2", "old"))...)
	v := r.mustPush(inline("runs/a/2", "new")).Version
	gone(Gone{"runs/a/2", v, true})
	r.check(append(full("2"), tombstone("runs/a/2"))...)
	if res := gone(Gone{"runs/a/2", v, true}); !res.Commit.IsZero() {
		t.Errorf("%+v", res)
	}
	// It goes when all tables that may have it are merged.
	for i := range 3 {
		ch := Changes{Entries: full(fmt.Sprint("m", i)), Gone: []Gone{{"runs/a/2", v, true}}}
		if _, err := r.w.Push(t.Context(), nil, ch); err != nil {
			t.Fatal(err)
		}
	}
	if h, have := names(t, mem, r.w.id.Writer); len(h.Tables) != 1 || have["runs/a/2"].Path != "" {
		t.Errorf("%d tables, %+v", len(h.Tables), have["runs/a/2"])
	}
}

// What no head can hold is named before anything of it is put, and the others are committed.
func TestBadChanges(t *testing.T) {
	mem := &bucket.Mem{}
	r := newRig(t, mem, 1)
	m := r.store.Simple(1, 40_000)
	if _, err := r.push(fileOf("runs/x", m), tombstone("runs/x")); err == nil {
		t.Error("changed twice")
	}
	mode, model, large := fileOf("runs/mode", m), fileOf("runs/model", m), inline("runs/large", "")
	mode.Mode = 0o4777
	model.File.Model = &record.Model{How: "?"}
	large = record.Entry{Path: large.Path, Kind: record.KindFolder}
	for i := range 20 {
		large.Attrs = append(large.Attrs, record.Attr{Name: fmt.Sprintf("user.%02d", i),
			Value: strings.Repeat("x", 60_000)})
	}
	res := r.mustPush(fileOf("tmp/x", m), mode, model, large, inline("runs/good", ""))
	if len(res.Failed) != 4 || len(keys(t, mem, "d/")) > 0 {
		t.Errorf("%+v", res.Failed)
	}
	r.check(inline("runs/good", ""))
	// One whose graph has yet to be put is fine.
	model.File.Model = &record.Model{Graph: []record.Part{{Hash: r.store.Alone(cas.Event, 70)}}}
	if res := r.mustPush(model); len(res.Failed) > 0 || res.Head.Tail[1].File.Model.Graph[0].Off == 0 ||
		model.File.Model.Graph[0].Off != 0 {
		t.Errorf("%+v", res)
	}
}

// Any changes by one writer are what a map says; and what they are over is never lost.
func TestChanges(outer *testing.T) {
	rapid.Check(outer, func(t *rapid.T) {
		mem := &bucket.Mem{}
		r := newRig(outer, mem, 1)
		want, covers := map[string]record.Entry{}, map[string]int64{}
		text := strings.Repeat("y", 2000)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				paths := rapid.SliceOfNDistinct(rapid.IntRange(0, 150), 1, 100, rapid.ID).Draw(t, "paths")
				var entries []record.Entry
				for _, p := range paths {
					e := inline(fmt.Sprintf("runs/a/%03d", p), text)
					switch rapid.IntRange(0, 9).Draw(t, "what") {
					case 0:
						e = tombstone(e.Path)
					case 1:
						v := rapid.IntRange(1, 1000).Draw(t, "over")
						e = over(e, you, v)
						covers[e.Path] = max(covers[e.Path], int64(v))
					}
					entries, want[e.Path] = append(entries, e), e
				}
				if _, err := r.w.Push(outer.Context(), nil, Changes{Entries: entries}); err != nil {
					t.Fatal(err)
				}
			},
			"restart": func(*rapid.T) { r.restart() },
			"": func(t *rapid.T) {
				if r.w.id.Writer == "" {
					return
				}
				_, have := names(outer, mem, r.w.id.Writer)
				if len(have) != len(want) {
					t.Fatalf("%d names, want %d", len(have), len(want))
				}
				for path, e := range want {
					h := have[path]
					if h.Kind != e.Kind {
						t.Fatalf("%+v, want %+v", h, e)
					}
					if v := covers[path]; v > 0 && (len(h.Over) != 1 || h.Over[0].Version != v) {
						t.Fatalf("%+v, want it over %d", h, v)
					}
				}
			},
		})
	})
}

// The identity of a commit that was not made is not kept; one whose fate is not known is, and recognized.
func TestUnsettled(t *testing.T) {
	f := &faulty{Bucket: &bucket.Mem{}}
	r := newRig(t, f, 1)
	r.mustPush(inline("runs/a/0", ""))
	f.fault = func(op, key string, n int) fault {
		if op == "put" && strings.HasPrefix(key, "heads/") {
			return never
		}
		return done
	}
	_, err := r.push(inline("runs/a/1", ""))
	if !errors.Is(err, ErrUnsettled) || len(r.state.id.Pending) != 1 {
		t.Errorf("%v, %+v", err, r.state.id)
	}
	f.fault = nil
	if res := r.mustPush(inline("runs/a/1", "")); res.Sequence != 2 || len(r.state.id.Pending) != 0 {
		t.Errorf("%+v, %+v", res, r.state.id)
	}
	if res := r.mustPush(inline("runs/a/1", "")); res.Sequence != 3 {
		t.Errorf("%+v", res)
	}
}
