package volume

import (
	"context"
	"log/slog"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// resolve finds the node of a path below the mount's root, with one reference more. Symlinks are not followed.
func (v *Volume) resolve(p string) (*Node, error) {
	n := v.names.root
	n.Pin()
	for name := range strings.SplitSeq(strings.Trim(path.Clean("/"+p), "/"), "/") {
		if name == "" {
			continue
		}
		next, _, err := v.Lookup(n, name)
		n.unref(1)
		if err != nil {
			return nil, err
		}
		n = next
	}
	return n, nil
}

// walk calls f with every regular file at or below the node of p, each with its path. Names that go meanwhile are
// passed over, and so are, without privileges, folders below it that their owner has locked.
func (v *Volume) walk(ctx context.Context, p string, f func(path string, n *Node) error) error {
	n, err := v.resolve(p)
	if err != nil {
		return err
	}
	defer n.unref(1)
	return v.names.walkNode(ctx, strings.Trim(path.Clean("/"+p), "/"), n, f)
}

func (ns *Names) walkNode(ctx context.Context, p string, n *Node, f func(string, *Node) error) error {
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
		return f(p, n)
	}
	names, err := n.listQuietly()
	if err != nil {
		return err
	}
	for _, e := range names {
		if e.Name == "." || e.Name == ".." {
			continue
		}
		c, _, err := ns.child(n, e.Name)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return err
		}
		err = ns.walkNode(ctx, path.Join(p, e.Name), c, f)
		if err == unix.EACCES && c.IsDir() && !ns.privileged {
			ns.v.report(slog.LevelWarn, "a locked folder is left out", "path", c.Path())
			err = nil
		}
		c.unref(1)
		if err != nil {
			return err
		}
	}
	return nil
}
