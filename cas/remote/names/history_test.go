package names

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas/remote/record"
)

// version is one that was committed: the reference keeps each, and what its author had seen.
type version struct {
	entry *record.Entry
	past  map[int]bool // numbers of versions, with what these had seen
}

// change is one of the local tree that is not committed yet.
type change struct {
	kind    record.Kind
	content string
	shown   []record.Replaced
	past    map[int]bool
}

// machine is a writer with what it has read of the others.
type machine struct {
	w       record.Writer
	clock   int64
	heads   map[record.Writer][]*record.Entry // own and others', as last read
	last    map[record.Writer]map[string]int  // by path, the newest version of each when its head was read
	pending map[string]change
}

// world is a remote without data.
type world struct {
	t        *rapid.T
	machines []*machine
	heads    map[record.Writer][]*record.Entry
	last     map[record.Writer]map[string]int // by path, the newest version that each committed
	versions []version
}

var paths = []string{"runs/a/x", "runs/a/y", "runs/a/z"}

func held(heads map[record.Writer][]*record.Entry, path string) []*record.Entry {
	var held []*record.Entry
	for _, entries := range heads {
		for _, e := range entries {
			if e.Path == path {
				held = append(held, e)
			}
		}
	}
	return held
}

// fetch reads one head.
func (w *world) fetch(m *machine, from record.Writer) {
	m.heads[from], m.last[from] = slices.Clone(w.heads[from]), maps.Clone(w.last[from])
	for _, e := range m.heads[from] {
		m.clock = max(m.clock, e.Version)
	}
}

// seen is what a machine has seen of a path, with what that had seen.
func (w *world) seen(m *machine, path string) map[int]bool {
	seen := map[int]bool{}
	for _, last := range m.last {
		if n, ok := last[path]; ok {
			seen[n] = true
			maps.Copy(seen, w.versions[n].past)
		}
	}
	return seen
}

// change makes a change of the local tree, which shows what is pending or else what was fetched.
func (w *world) change(m *machine, path string, kind record.Kind, content string) {
	c, again := m.pending[path]
	if !again {
		c = change{shown: Merge(held(m.heads, path)).Shown(), past: w.seen(m, path)}
	}
	c.kind, c.content = kind, content
	m.pending[path] = c
}

// undelete brings back what was deleted, if the local tree has no change.
func (w *world) undelete(m *machine, path string) {
	d, ok := Undelete(held(m.heads, path))
	if _, again := m.pending[path]; !ok || again {
		return
	}
	e := d.Entry
	c := change{kind: e.Kind, shown: d.Shown, past: w.seen(m, path)}
	if e.File != nil {
		c.content = e.File.Inline
	}
	m.pending[path] = c
}

// commit publishes all that is pending on top of the head as it is, and takes out what is spare by what was
// read.
func (w *world) commit(m *machine) {
	m.heads[m.w] = slices.Clone(w.heads[m.w])
	m.clock++
	for path, c := range m.pending {
		x := held(m.heads, path)
		e := kind(file(m.w, m.clock, c.content, Over(m.w, c.shown, x)...), c.kind)
		e.Path = path
		if was := Merge(x).Name; was != nil && c.kind == record.KindTombstone {
			e.Removed = &record.Removed{Entry: *was}
		}
		m.last[m.w][path] = len(w.versions)
		w.versions = append(w.versions, version{e, c.past})
		m.heads[m.w] = append(slices.DeleteFunc(m.heads[m.w], func(f *record.Entry) bool {
			return f.Path == path
		}), e)
	}
	clear(m.pending)
	m.heads[m.w] = withoutSpare(m.heads[m.w], m.heads)
	w.heads[m.w], w.last[m.w] = slices.Clone(m.heads[m.w]), maps.Clone(m.last[m.w])
}

// forgotten are entries after a collector condemned what one of them tells of.
func forgotten(entries []*record.Entry, path string) []*record.Entry {
	var all []*record.Entry
	for _, e := range entries {
		if e.Removed != nil && e.Path == path {
			f := *e
			f.Removed, e = nil, &f
		}
		all = append(all, e)
	}
	return all
}

func withoutSpare(entries []*record.Entry, heads map[record.Writer][]*record.Entry) []*record.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e *record.Entry) bool {
		return Spare(e, held(heads, e.Path))
	})
}

// tips are a path's by the reference: the versions that no author of another had seen.
func (w *world) tips(path string) []*record.Entry {
	covered := map[int]bool{}
	for _, v := range w.versions {
		if v.entry.Path == path {
			maps.Copy(covered, v.past)
		}
	}
	last := map[int]bool{}
	for _, of := range w.last {
		if n, ok := of[path]; ok {
			last[n] = true // a writer has seen what it wrote before
		}
	}
	var tips []*record.Entry
	for n, v := range w.versions {
		if v.entry.Path == path && last[n] && !covered[n] {
			tips = append(tips, v.entry)
		}
	}
	return tips
}

// check compares what the heads come to with the reference, in whatever order they are read.
func (w *world) check(when string) {
	for _, path := range paths {
		read := held(w.heads, path)
		m := Merge(read)
		slices.Reverse(read)
		if again := Merge(read); again.Name != m.Name || !slices.Equal(again.Conflicts, m.Conflicts) ||
			!slices.Equal(again.Tips, m.Tips) {
			w.t.Fatalf("%s: %s: %+v, and %+v", when, path, m, again)
		}
		got, want := map[string]bool{}, map[string]bool{}
		var best *record.Entry
		for _, e := range w.tips(path) {
			if e.Kind == record.KindTombstone {
				continue
			}
			want[content(e)] = true
			if best == nil || better(e, best) < 0 {
				best = e
			}
		}
		for _, e := range append(list(m.Name), m.Conflicts...) {
			if e != nil {
				got[content(e)] = true
			}
		}
		if !maps.Equal(got, want) {
			w.t.Fatalf("%s: %s: %v, want %v", when, path, got, want)
		}
		if best != nil && (m.Name.Origin != best.Origin || m.Name.Version != best.Version) {
			w.t.Fatalf("%s: %s: %+v has the name, not %+v", when, path, m.Name, best)
		}
	}
}

func content(e *record.Entry) string {
	if e.Kind == record.KindFolder {
		return "a folder"
	}
	return fmt.Sprint(e.Kind, e.File.Inline)
}

// tidy takes out all that is spare, as collectors do, until nothing is: no replaced entry and no tombstone.
func (w *world) tidy() {
	for of := range w.heads {
		for _, path := range paths {
			w.heads[of] = forgotten(w.heads[of], path)
		}
	}
	for n := -1; n != 0; {
		n = 0
		for of, entries := range w.heads {
			w.heads[of] = withoutSpare(entries, w.heads)
			n += len(entries) - len(w.heads[of])
		}
		w.check("tidied")
	}
	for of, entries := range w.heads {
		for _, e := range entries {
			if e.Kind == record.KindTombstone || Replaced(e, held(w.heads, e.Path)) {
				w.t.Fatalf("the head of %s keeps %+v", of, e)
			}
		}
	}
}

// Three machines change, fetch each other's heads one by one and commit in any order. No version is lost:
// it is the name, a conflict, or its successor's author had seen it.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, heads: map[record.Writer][]*record.Entry{},
			last: map[record.Writer]map[string]int{}}
		for _, of := range []record.Writer{alice, bob, carol} {
			w.last[of] = map[string]int{}
			w.machines = append(w.machines, &machine{w: of, heads: map[record.Writer][]*record.Entry{},
				last: map[record.Writer]map[string]int{of: {}}, pending: map[string]change{}})
		}
		pick := func() *machine { return rapid.SampledFrom(w.machines).Draw(t, "machine") }
		path := func() string { return rapid.SampledFrom(paths).Draw(t, "path") }
		letter := func() string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "content") }
		t.Repeat(map[string]func(*rapid.T){
			"write":    func(*rapid.T) { w.change(pick(), path(), record.KindFile, letter()) },
			"mkdir":    func(*rapid.T) { w.change(pick(), path(), record.KindFolder, "") },
			"delete":   func(*rapid.T) { w.change(pick(), path(), record.KindTombstone, "") },
			"undelete": func(*rapid.T) { w.undelete(pick(), path()) },
			"rename": func(*rapid.T) {
				m := pick()
				w.change(m, path(), record.KindTombstone, "")
				w.change(m, path(), record.KindFile, letter())
			},
			"commit": func(*rapid.T) { w.commit(pick()) },
			"fetch":  func(*rapid.T) { w.fetch(pick(), pick().w) },
			"fetch all": func(*rapid.T) {
				m := pick()
				for of := range w.heads {
					w.fetch(m, of)
				}
			},
			"a collector stamps": func(*rapid.T) {
				of := pick().w
				if rapid.Bool().Draw(t, "condemns") {
					w.heads[of] = forgotten(w.heads[of], path())
				}
				w.heads[of] = withoutSpare(w.heads[of], w.heads)
			},
			"": func(*rapid.T) { w.check("after a step") },
		})
		w.tidy()
	})
}
