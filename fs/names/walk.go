package names

import (
	"context"
	"log/slog"
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
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.IsVirtual() {
		return nil
	}
	if !n.IsDir() {
		if n.file == nil {
			return nil
		}
		return do(p, n)
	}
	names, err := n.ListQuietly()
	if err == unix.ENOENT {
		return nil // gone meanwhile
	}
	if err != nil {
		return err
	}
	for _, e := range names {
		if e.Name == "." || e.Name == ".." {
			continue
		}
		c, _, err := ns.Child(n, e.Name)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return err
		}
		err = ns.WalkBelow(ctx, path.Join(p, e.Name), c, do)
		if err == unix.EACCES && c.IsDir() && !ns.privileged {
			ns.o.Report(slog.LevelWarn, "a locked folder is left out", "path", c.Path())
			err = nil
		}
		c.Unpin()
		if err != nil {
			return err
		}
	}
	return nil
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

// Folders are the directories above the node, by one of its names, with a reference to each; not the root.
func (n *Node) Folders() []*Node {
	ns := n.ns
	ns.ns.RLock()
	defer ns.ns.RUnlock()
	ns.tab.mu.Lock()
	defer ns.tab.mu.Unlock()
	var out []*Node
	for len(n.names) > 0 && n.names[0].Dir != nil && n.names[0].Dir != ns.root {
		n = n.names[0].Dir
		n.refs++
		out = append(out, n)
	}
	return out
}
