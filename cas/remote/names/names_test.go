package names

import (
	"slices"
	"testing"

	"ckptfs/cas/remote/record"
)

const (
	alice record.Writer = "alice.00000001"
	bob   record.Writer = "bob.00000002"
	carol record.Writer = "carol.00000003"
)

// file is an entry whose content is what it says.
func file(w record.Writer, version int64, content string, over ...record.Replaced) *record.Entry {
	return &record.Entry{Path: "runs/a/f", Origin: w, Version: version, Over: over,
		File: &record.File{Size: int64(len(content)), Inline: content}}
}

func kind(e *record.Entry, k record.Kind) *record.Entry {
	if e.Kind = k; k != record.KindFile {
		e.File = nil
	}
	return e
}

func TestMerge(t *testing.T) {
	a, b, c := file(alice, 1, "a"), file(bob, 2, "b"), file(carol, 2, "c")
	older, twin := file(carol, 1, "x"), file(carol, 3, "a")
	tomb := func(e *record.Entry) *record.Entry { return kind(e, record.KindTombstone) }
	link := kind(file(bob, 9, ""), record.KindLink)
	link.Link = "a"
	folder := kind(file(alice, 1, ""), record.KindFolder)
	late := tomb(file(carol, 9, "", record.Replaced{Writer: alice, Version: 1}))
	for name, x := range map[string]struct {
		held                      []*record.Entry
		name                      *record.Entry
		conflicts, tips, replaced []*record.Entry
	}{
		"nothing":           {},
		"one":               {held: list(a), name: a, tips: list(a)},
		"the newest of one": {held: list(older, c), name: c, tips: list(c)},
		"a conflict":        {held: list(a, b), name: b, conflicts: list(a), tips: list(b, a)},
		"of one version the greater writer": {held: list(b, c), name: c, conflicts: list(b),
			tips: list(c, b)},
		"equal contents are one": {held: list(a, twin), name: twin, tips: list(twin, a)},
		"a folder wins": {held: list(folder, b), name: folder, conflicts: list(b),
			tips: list(folder, b)},
		"a link is another":      {held: list(a, link), name: link, conflicts: list(a), tips: list(link, a)},
		"a deletion that saw it": {held: list(a, late), tips: list(late), replaced: list(a)},
		"a deletion that did not": {held: list(file(alice, 1, "a"), b, late)[1:], name: b,
			tips: list(b, late)},
	} {
		m := Merge(x.held)
		if m.Name != x.name || !slices.Equal(m.Conflicts, x.conflicts) || !slices.Equal(m.Tips, x.tips) ||
			!slices.Equal(m.Replaced, x.replaced) {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

func list(entries ...*record.Entry) []*record.Entry { return entries }

// What covers something stays, and keeps its over.
func TestSpare(t *testing.T) {
	a := file(alice, 1, "a")
	b := file(bob, 2, "b", record.Replaced{Writer: alice, Version: 1})
	c := kind(file(carol, 3, "", record.Replaced{Writer: bob, Version: 2}), record.KindTombstone)
	for name, x := range map[string]struct {
		e    *record.Entry
		held []*record.Entry
		want bool
	}{
		"what is replaced":                   {a, list(a, b), true},
		"what has the name":                  {b, list(a, b), false},
		"what is replaced and covers":        {b, list(a, b, c), false},
		"a tombstone that covers":            {c, list(b, c), false},
		"a tombstone that covers no longer":  {c, list(c), true},
		"what is replaced, covers no longer": {b, list(b, c), true},
		"a tombstone over a table's entry":   {c, list(c, file(carol, 2, "c")), false},
	} {
		if got := Spare(x.e, x.held); got != x.want {
			t.Errorf("%s: spare %v", name, got)
		}
	}
	shown := []record.Replaced{{Writer: carol, Version: 3}, {Writer: bob, Version: 2}}
	over := Over(bob, shown, list(a, b, c))
	want := []record.Replaced{{Writer: alice, Version: 1}, {Writer: carol, Version: 3}}
	if !slices.Equal(over, want) {
		t.Errorf("%v", over)
	}
	if over := Over(bob, []record.Replaced{{Writer: carol, Version: 3}}, list(b)); over != nil {
		t.Errorf("over what is not held: %v", over)
	}
}

// A version counts as a folder if that very one is held.
func TestFolders(t *testing.T) {
	shown := []record.Replaced{{Writer: alice, Version: 1}, {Writer: bob, Version: 2},
		{Writer: carol, Version: 1}}
	folder := func(w record.Writer, v int64) *record.Entry { return kind(file(w, v, ""), record.KindFolder) }
	got := Folders(shown, list(folder(alice, 1), file(bob, 2, "b"), folder(carol, 2)))
	if !slices.Equal(got, shown[:1]) || len(shown) != 3 || shown[1].Writer != bob {
		t.Errorf("%v of %v", got, shown)
	}
}

func TestLevel(t *testing.T) {
	at := func(path string, e *record.Entry) record.Entry {
		e.Path = path
		return *e
	}
	heads := [][]record.Entry{
		{at("runs/a", kind(file(alice, 1, ""), record.KindFolder)),
			at("runs/a/3/model.pt", file(alice, 2, "m")), at("runs/a/3/x", file(alice, 4, "x")),
			at("runs/a/30", file(alice, 5, "30")),
			at("runs/a/5/f", file(alice, 6, "f")), at("runs/a-b/f", file(alice, 3, "f"))},
		{at("runs/a/3", file(bob, 3, "a file")), at("runs/a/4", kind(file(bob, 4, ""), record.KindFolder)),
			at("runs/a/5/f", kind(file(bob, 9, "", record.Replaced{Writer: alice, Version: 6}),
				record.KindTombstone))},
	}
	for dir, want := range map[string][]string{
		"runs":     {"runs/a folder", "runs/a-b folder"},
		"runs/a":   {"runs/a/3 folder conflict", "runs/a/30", "runs/a/4 folder"},
		"runs/a/3": {"runs/a/3/model.pt", "runs/a/3/x"},
		"runs/b":   nil,
	} {
		var got []string
		for _, n := range Level(dir, heads...) {
			s := n.Path
			if n.Folder {
				s += " folder"
			}
			for range n.Conflicts {
				s += " conflict"
			}
			got = append(got, s)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", dir, got)
		}
	}
	var all []string
	for _, n := range Tree(heads...) {
		all = append(all, n.Path)
	}
	if want := []string{"runs/a", "runs/a/3", "runs/a/3/model.pt", "runs/a/3/x", "runs/a/30", "runs/a/4",
		"runs/a-b", "runs/a-b/f"}; !slices.Equal(all, want) {
		t.Errorf("%q", all)
	}
	for _, n := range Level("runs/a", heads...) {
		if n.Path == "runs/a/3" && (n.Name != nil || len(n.Conflicts) != 1 || n.Conflicts[0].Origin != bob) {
			t.Errorf("%+v", n)
		}
	}
}

// What was deleted comes back from the tombstone that tells of it, or from what that covers; nobody's but the
// best of it, and nothing under a name that something has.
func TestUndelete(t *testing.T) {
	tomb := func(w record.Writer, version int64, was *record.Entry, over ...record.Replaced) *record.Entry {
		e := kind(file(w, version, "", over...), record.KindTombstone)
		if was != nil {
			e.Removed = &record.Removed{Time: 7, Entry: *was}
		}
		return e
	}
	a, b := file(alice, 1, "a"), file(bob, 2, "b")
	overA := record.Replaced{Writer: alice, Version: 1}
	own := tomb(alice, 4, a)
	by, covering := tomb(bob, 5, a, overA), tomb(carol, 6, nil, overA)
	for name, x := range map[string]struct {
		held  []*record.Entry
		want  string
		by    *record.Entry
		shown int
	}{
		"nothing":                {},
		"a name":                 {held: list(own, b)},
		"own":                    {list(own), "a", own, 1},
		"another's":              {list(by), "a", by, 1},
		"covered, and held":      {list(a, covering), "a", covering, 2},
		"own, in an older table": {list(a, tomb(alice, 4, nil)), "a", nil, 1},
		"the best of two":        {list(tomb(carol, 9, b), own), "b", nil, 2},
		"nobody looked":          {held: list(tomb(alice, 4, nil))},
		"what was deleted before is brought back": {held: list(own, file(bob, 9, "a",
			record.Replaced{Writer: alice, Version: 4}))},
	} {
		d, ok := Undelete(x.held)
		if ok != (x.want != "") {
			t.Errorf("%s: %+v", name, d)
			continue
		}
		if ok && (d.Entry.File.Inline != x.want || len(d.Shown) != x.shown || x.by != nil && d.By != x.by) {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
