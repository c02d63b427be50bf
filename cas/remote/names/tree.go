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

// AsFolder is the entry of a name, or, where nothing is said of it but of names in it, that of a folder; nil:
// there is no such name.
func (n *Node) AsFolder() *record.Entry {
	if n.Name == nil && n.Folder {
		return &record.Entry{Path: n.Path, Kind: record.KindFolder, Mode: 0o755}
	}
	return n.Name
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
			if !yield(path, all[:n:n]) { // what is appended to it goes over no other path's
				return
			}
			all = all[n:]
		}
	}
}

// Tree is all names, ascending, with the folders that are there by what they hold. The lists have all that is
// held of what is to be seen, and of what is below it.
func Tree(lists ...[]record.Entry) []Node {
	var nodes []Node
	index := map[string]int{}
	for path, held := range Paths(lists...) {
		m := Merge(held)
		if m.Name == nil {
			continue
		}
		for _, dir := range folders(path) {
			if i, there := index[dir]; there {
				nodes[i].holds()
			} else {
				index[dir] = len(nodes)
				nodes = append(nodes, Node{Path: dir, Folder: true})
			}
		}
		index[path] = len(nodes)
		nodes = append(nodes, Node{path, m.Name.Kind == record.KindFolder, m})
	}
	return nodes
}

// Level is what a folder holds, one level of it. The lists have all that is held below it.
func Level(dir string, lists ...[]record.Entry) []Node {
	return slices.DeleteFunc(Tree(lists...), func(n Node) bool {
		name, inside := strings.CutPrefix(n.Path, dir+"/")
		return !inside || strings.Contains(name, "/")
	})
}

// folders are those that a path lies in, but for the shared root.
func folders(path string) []string {
	var dirs []string
	for i, c := range path {
		if c == '/' {
			dirs = append(dirs, path[:i])
		}
	}
	return dirs[1:]
}

// holds makes the node the folder of something.
func (n *Node) holds() {
	if n.Folder {
		return
	}
	n.Folder = true
	n.Name, n.Conflicts = nil, slices.Insert(n.Conflicts, 0, n.Name)
}
