package share

import (
	"cmp"
	"io/fs"
	"path"
	"slices"
	"strings"

	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
	"ckptfs/fs/steps"
)

// shared checks a path that a command is about.
func shared(op, at string) (string, error) {
	if at = cmp.Or(at, steps.Dir); !record.Below(at, steps.Dir) {
		return "", &fs.PathError{Op: op, Path: at,
			Err: control.Invalid("what lies below %s/ is shared", steps.Dir)}
	}
	return at, nil
}

// inStep is what a run holds that a path leads to or into, or the run; "" for what is not shared.
func inStep(p string) string {
	parts := strings.SplitN(p, "/", 4)
	if len(parts) < 2 || parts[0] != steps.Dir {
		return ""
	}
	return path.Join(parts[:min(len(parts), 3)]...)
}

// Shares reports whether a path is one that may be published, or that a pull works with.
func Shares(p string) bool {
	if inStep(p) == "" {
		return false
	}
	for _, name := range strings.Split(p, "/")[1:] {
		if !mayPublish(name) && !strings.HasPrefix(name, working) {
			return false
		}
	}
	return true
}

// dotted are names that begin with a dot, and that formats give to files without which the others beside them
// say nothing: those of PyTorch's distributed checkpoints, and of zarr 2.
var dotted = []string{".metadata", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}

// mayPublish reports whether a name in a run is one that is published.
func mayPublish(name string) bool {
	if strings.HasPrefix(name, ".") {
		return slices.Contains(dotted, name)
	}
	return !steps.Unfinished(name)
}

// runOf is the run that a path leads to or into.
func runOf(p string) string {
	parts := strings.SplitN(p, "/", 3)
	return path.Join(parts[:min(len(parts), 2)]...)
}

// leads reports whether p is what was asked for, or above or below it.
func leads(p, asked string) bool { return record.Below(p, asked) || record.Below(asked, p) }
