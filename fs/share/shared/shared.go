// Package shared says which names are shared with a remote, and what they belong to.
package shared

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
)

// LookTimeout bounds for how long who looks at names waits for the remote: what was seen last is shown then.
// Tests change it.
var LookTimeout = 20 * time.Second

// HoldsSome reports whether something is in a folder.
func HoldsSome(n *names.Node) (bool, error) {
	list, err := n.ListQuietly()
	return slices.ContainsFunc(list, func(e tree.DirEntry) bool {
		return e.Name != "." && e.Name != ".."
	}), err
}

// NotEmpty reports whether a folder was not removed since something is in it.
func NotEmpty(err error) bool { return errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) }

// Gone is an error but that a name went meanwhile, or that a folder above it is none any more.
func Gone(err error) error {
	for _, is := range []error{unix.ENOENT, unix.ESTALE, unix.ENOTDIR} {
		if errors.Is(err, is) {
			return nil
		}
	}
	return err
}

// Path checks a path that a command is about.
func Path(op, at string) (string, error) {
	if at = cmp.Or(at, steps.Dir); !record.Below(at, steps.Dir) {
		return "", &fs.PathError{Op: op, Path: at,
			Err: control.Invalid("what lies below %s/ is shared", steps.Dir)}
	}
	return at, nil
}

// Step is what a run holds that a path leads to or into, or the run; "" for what is not shared.
func Step(p string) string {
	parts := strings.SplitN(p, "/", 4)
	if len(parts) < 2 || parts[0] != steps.Dir {
		return ""
	}
	return path.Join(parts[:min(len(parts), 3)]...)
}

// dotted are names that begin with a dot, and that formats give to files without which the others beside them
// say nothing: those of PyTorch's distributed checkpoints, and of zarr 2.
var dotted = []string{".metadata", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}

// MayPublish reports whether a name in a run is one that is published.
func MayPublish(name string) bool {
	if strings.HasPrefix(name, ".") {
		return slices.Contains(dotted, name)
	}
	return !steps.Unfinished(name)
}

// Run is the run that a path leads to or into.
func Run(p string) string {
	parts := strings.SplitN(p, "/", 3)
	return path.Join(parts[:min(len(parts), 2)]...)
}

// Leads reports whether p is what was asked for, or above or below it.
func Leads(p, asked string) bool { return record.Below(p, asked) || record.Below(asked, p) }
