package names

import (
	"iter"
	"slices"
	"strings"

	"ckptfs/cas/remote/record"
)

// Node is a name in a folder.
type Node struct {
	Path   string
	Folder bool // by its entry, or, Name being nil, by what it holds
	Merged
}

// Paths groups entries by path, ascending. Each list is all or a part of what a head or table holds.
func Paths(lists ...[]record.Entry) iter.Seq2[string, []*record.Entry] {
	return func(yield func(string, []*record.Entry) bool) {
		var all []*record.Entry
		for _, list := range lists {
			for i := range list {
				all = append(all, &list[i])
			}
		}
		slices.SortFunc(all, func(a, b *record.Entry) int { return record.ComparePaths(a.Path, b.Path) })
		for len(all) > 0 {
			path := all[0].Path
			n := slices.IndexFunc(all, func(e *record.Entry) bool { return e.Path != path })
			if n < 0 {
				n = len(all)
			}
			if !yield(path, all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// Level is what a folder holds, one level of it, ascending. The lists have all that is held of what is below
// the folder.
func Level(dir string, lists ...[]record.Entry) []Node {
	var nodes []Node
	for path, held := range Paths(lists...) {
		rest, inside := strings.CutPrefix(path, dir+"/")
		if !inside {
			continue
		}
		name, _, deeper := strings.Cut(rest, "/")
		at, m := dir+"/"+name, Merge(held)
		if deeper && m.Name == nil {
			continue
		}
		if n := len(nodes); n == 0 || nodes[n-1].Path != at {
			nodes = append(nodes, Node{Path: at})
		}
		n := &nodes[len(nodes)-1]
		if deeper {
			n.holds()
		} else {
			n.Merged = m
			n.Folder = m.Name != nil && m.Name.Kind == record.KindFolder
		}
	}
	return slices.DeleteFunc(nodes, func(n Node) bool { return n.Name == nil && !n.Folder })
}

// holds makes the node the folder of something.
func (n *Node) holds() {
	if n.Folder {
		return
	}
	n.Folder = true
	if n.Name != nil {
		n.Name, n.Conflicts = nil, slices.Insert(n.Conflicts, 0, n.Name)
	}
}
