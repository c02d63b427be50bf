package names

import (
	"context"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Resolve finds the node of a path of the tree, with one reference more. Symlinks are not followed, and what
// has no inode is not found.
func (ns *Names) Resolve(p string) (*Node, error) {
	n := ns.root
	n.Pin()
	for name := range strings.SplitSeq(strings.Trim(path.Clean("/"+p), "/"), "/") {
		if name == "" {
			continue
		}
		next, _, err := ns.Child(n, name)
		n.Unpin()
		if err != nil {
			return nil, err
		}
		n = next
	}
	return n, nil
}

// Walk calls do with every regular file of the tree and its path. Names that go meanwhile are passed over,
// and so are, without privileges, folders that their owner has locked.
func (ns *Names) Walk(ctx context.Context, do func(path string, n *Node) error) error {
	return ns.WalkBelow(ctx, "", ns.root, do)
}

// WalkBelow is Walk of the files at or below n, whose path is p.
func (ns *Names) WalkBelow(
	ctx context.Context, p string, n *Node, do func(path string, n *Node) error,
) error {
	file := func(p string, n *Node, _ *unix.Stat_t) error { return do(p, n) }
	return ns.tourBelow(ctx, p, n, Tour{File: file})
}

// Below reports whether the node is below a folder of the root, by one of its names.
func (n *Node) Below(folder string) bool {
	ns := n.ns
	ns.ns.RLock()
	defer ns.ns.RUnlock()
	ns.tab.mu.Lock() // a hard link's other name may be added just now
	defer ns.tab.mu.Unlock()
	for len(n.names) > 0 && n.names[0].Dir != nil {
		a := n.names[0]
		if len(a.Dir.names) == 0 || a.Dir.names[0].Dir == nil {
			return a.Name == folder
		}
		n = a.Dir
	}
	return false
}

// Ways are the ways to a node: of each of its known names the folders above it, the mount's root last, with a
// reference to each. There is none to a node that was removed.
func (n *Node) Ways() (ways [][]*Node) {
	ns := n.ns
	ns.ns.RLock()
	defer ns.ns.RUnlock()
	ns.tab.mu.Lock()
	defer ns.tab.mu.Unlock()
	if n == ns.root {
		return [][]*Node{nil}
	}
	for _, a := range n.names {
		var way []*Node
		dir := a.Dir
		for way = append(way, dir); dir != ns.root && len(dir.names) > 0; way = append(way, dir) {
			dir = dir.names[0].Dir
		}
		if dir != ns.root {
			continue
		}
		for _, d := range way {
			d.refs++
		}
		ways = append(ways, way)
	}
	return ways
}
