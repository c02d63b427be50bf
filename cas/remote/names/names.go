// Package names is what the heads of a remote come to together: which entry has a name, which are in conflict
// with it, and which may go. It is a pure function of entries and reads nothing.
//
// # Merging
//
// Let X be all that heads and their tables hold of one path. Of one origin the entry of the highest version
// counts. An entry e is replaced if some f in X of another origin is over (e.Origin, v), and v ≥ e.Version.
// What is not replaced are the path's tips.
//
//   - Tips of equal content are one, which has the attributes of the best.
//   - Better is a folder than a file or link, these than a tombstone; else the higher version, then the
//     greater name of the origin.
//   - The best tip has the name, unless it is a tombstone: then nothing has. Others are conflicts, but for
//     tombstones: a deletion does not win against a write that it had not seen.
//   - What has names below it is a folder, also without an entry; a file's entry is a conflict.
//
// So machines that have read the same heads show the same.
//
// # What a writer owes
//
// Its commit builds on its head as it is, from which a collector may have taken something out. The version is
// greater than any that it has seen. An entry is over what the local tree showed when the change was made,
// and over what its entry before was over (Over). And:
//
//	what covers something never goes, and never loses its over, while what it covers is in any head or table
//
// So what is replaced stays so: no committed version is lost, and it is the name, a conflict, or covered by
// an entry whose author had seen it. An entry may go (Spare) when it is replaced, or a tombstone, and covers
// nothing that is held.
//
// That is asked of all heads. They may be read one after the other, if those of writers that e is over are
// read after e was seen: what e covers was there before, and once taken out of a head it does not come back.
// Only folding brings an entry into another head: into @archive first, and out of its writer's then. So
// @archive's head is to be read last.
package names

import (
	"cmp"
	"maps"
	"slices"

	"ckptfs/cas/remote/record"
)

// Merged is what the entries of one path come to.
type Merged struct {
	Name      *record.Entry   // what has the name; nil if nothing has
	Conflicts []*record.Entry // what else would have it, the best first
	Tips      []*record.Entry // what nothing replaces, the best first; with tombstones and equal contents
	Replaced  []*record.Entry
}

// Merge merges all that heads and tables hold of one path, in any order.
func Merge(held []*record.Entry) Merged {
	var m Merged
	newest := newest(held)
	for _, e := range newest {
		if Replaced(e, newest) {
			m.Replaced = append(m.Replaced, e)
		} else {
			m.Tips = append(m.Tips, e)
		}
	}
	var contents []*record.Entry
	for _, e := range m.Tips {
		if e.Kind != record.KindTombstone &&
			!slices.ContainsFunc(contents, func(f *record.Entry) bool { return Equal(e, f) }) {
			contents = append(contents, e)
		}
	}
	if len(contents) > 0 {
		m.Name, m.Conflicts = contents[0], contents[1:]
	}
	return m
}

// newest are the entries that count, the best first.
func newest(held []*record.Entry) []*record.Entry {
	of := make(map[record.Writer]*record.Entry, len(held))
	for _, e := range held {
		if f := of[e.Origin]; f == nil || f.Version < e.Version {
			of[e.Origin] = e
		}
	}
	return slices.SortedFunc(maps.Values(of), better)
}

// better is negative if a goes before b.
func better(a, b *record.Entry) int {
	return cmp.Or(rank(a)-rank(b), cmp.Compare(b.Version, a.Version), cmp.Compare(b.Origin, a.Origin))
}

func rank(e *record.Entry) int {
	switch e.Kind {
	case record.KindFolder:
		return 0
	case record.KindTombstone:
		return 2
	}
	return 1
}

// Equal reports whether entries differ in attributes at most.
func Equal(a, b *record.Entry) bool {
	switch {
	case a.Kind != b.Kind || a.Link != b.Link:
		return false
	case a.Kind == record.KindFile:
		return a.File.Manifest == b.File.Manifest && a.File.Inline == b.File.Inline
	}
	return true
}

// covers reports whether f says that it is over e.
func covers(f, e *record.Entry) bool {
	return slices.ContainsFunc(f.Over, func(o record.Replaced) bool {
		return o.Writer == e.Origin && o.Version >= e.Version
	})
}

// Replaced reports whether something held of the path replaces e.
func Replaced(e *record.Entry, held []*record.Entry) bool {
	return slices.ContainsFunc(held, func(f *record.Entry) bool { return covers(f, e) })
}

// Stands reports whether a writer has a file or a link of the path that nothing replaces.
func Stands(own record.Writer, held []*record.Entry) bool {
	return slices.ContainsFunc(newest(held), func(e *record.Entry) bool {
		return e.Origin == own && rank(e) == 1 && !Replaced(e, held)
	})
}

// Spare reports whether e, which is held, may be taken out of its head. A tombstone also covers what its
// writer's tables have of the path; and it stays while it tells what it removed, so that this can be undone.
func Spare(e *record.Entry, held []*record.Entry) bool {
	gone := e.Kind == record.KindTombstone && e.Removed == nil &&
		!slices.ContainsFunc(held, func(f *record.Entry) bool {
			return f.Origin == e.Origin && f.Version < e.Version
		})
	covering := slices.ContainsFunc(held, func(f *record.Entry) bool { return covers(e, f) })
	return !covering && (gone || Replaced(e, held))
}

// Shown is what a change of the path replaces that is made while the local tree shows m.
func (m Merged) Shown() []record.Replaced { return identities(m.Tips) }

func identities(entries []*record.Entry) []record.Replaced {
	shown := make([]record.Replaced, len(entries))
	for i, e := range entries {
		shown[i] = record.Replaced{Writer: e.Origin, Version: e.Version}
	}
	return shown
}

// Folders are those of the versions that are folders and held. A folder that no program made or changed, and
// that stays for what is in it, replaces no others.
func Folders(shown []record.Replaced, held []*record.Entry) []record.Replaced {
	return slices.DeleteFunc(slices.Clone(shown), func(r record.Replaced) bool {
		return !slices.ContainsFunc(held, func(e *record.Entry) bool {
			return e.Origin == r.Writer && e.Version == r.Version && e.Kind == record.KindFolder
		})
	})
}

// Over is what a new entry of own is over: what was shown when the change was made, and what own's entry
// before is over, as far as it is held still.
func Over(own record.Writer, shown []record.Replaced, held []*record.Entry) []record.Replaced {
	all := slices.Clone(shown)
	for _, e := range held {
		if e.Origin == own {
			all = append(all, e.Over...)
		}
	}
	over := map[record.Writer]int64{}
	for _, o := range all {
		if o.Writer != own && slices.ContainsFunc(held, func(e *record.Entry) bool {
			return e.Origin == o.Writer && e.Version <= o.Version
		}) {
			over[o.Writer] = max(over[o.Writer], o.Version)
		}
	}
	var list []record.Replaced
	for _, w := range slices.Sorted(maps.Keys(over)) {
		list = append(list, record.Replaced{Writer: w, Version: over[w]})
	}
	return list
}

// Union is of lists the entry of the highest version of each path and origin, in the order of the lists of
// own; of one version the first.
func Union(own record.Writer, lists ...[]record.Entry) []record.Entry {
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, func(a, b record.Entry) int {
		return cmp.Or(a.Compare(&b, own), cmp.Compare(b.Version, a.Version))
	})
	return slices.CompactFunc(all, func(a, b record.Entry) bool { return a.Compare(&b, own) == 0 })
}

// Deletion is what was deleted under a path that nothing has.
type Deletion struct {
	Entry *record.Entry     // what had the name, the best of several
	By    *record.Entry     // the tombstone that removed it
	Shown []record.Replaced // what an entry that brings it back is over: all tombstones, and what they cover
}

// Undelete is what can be brought back under a path: of what tombstones removed, and of what they cover and
// is held, the best. The objects that it needs may have been condemned since, as those of any entry; they may
// even be gone.
func Undelete(held []*record.Entry) (d Deletion, ok bool) {
	m := Merge(held)
	if m.Name != nil {
		return d, false
	}
	take := func(e, by *record.Entry) {
		if d.Entry == nil || better(e, d.Entry) < 0 {
			d.Entry, d.By = e, by
		}
	}
	d.Shown = m.Shown()
	for _, t := range m.Tips { // tombstones, as nothing has the name
		if t.Removed != nil {
			take(&t.Removed.Entry, t)
		}
		for _, e := range held {
			if older := e.Origin == t.Origin && e.Version < t.Version; e.Kind != record.KindTombstone &&
				(older || covers(t, e)) {
				take(e, t)
			}
		}
	}
	for _, e := range m.Replaced {
		if Replaced(e, m.Tips) {
			d.Shown = append(d.Shown, record.Replaced{Writer: e.Origin, Version: e.Version})
		}
	}
	return d, d.Entry != nil
}
