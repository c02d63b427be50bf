package record

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// What a path may be.
const (
	MaxPath      = 4096 // bytes
	maxComponent = 255  // bytes
	maxDepth     = 64   // components
)

var roots = []string{"runs", "exports"}

// Roots are the folders that are shared.
func Roots() []string { return slices.Clone(roots) }

// CheckPath returns an error unless p is a path of something shared.
func CheckPath(p string) error {
	if len(p) > MaxPath || strings.IndexByte(p, 0) >= 0 {
		return fmt.Errorf("path %.60q of %d bytes", p, len(p))
	}
	depth := 0
	for c := range strings.SplitSeq(p, "/") {
		if c == "" || len(c) > maxComponent || c == "." || c == ".." {
			return fmt.Errorf("path %.60q: component %.60q", p, c)
		}
		depth++
	}
	if depth > maxDepth {
		return fmt.Errorf("path %.60q of %d components", p, depth)
	}
	for _, root := range roots {
		if strings.HasPrefix(p, root+"/") {
			return nil
		}
	}
	return fmt.Errorf("path %.60q is not below runs/ or exports/", p)
}

// ComparePaths orders paths by their components: what a folder holds stands behind it, together.
func ComparePaths(a, b string) int {
	n := shared(a, b)
	switch {
	case n == len(a) || n == len(b):
		return cmp.Compare(len(a), len(b))
	case a[n] == '/':
		return -1
	case b[n] == '/':
		return 1
	}
	return cmp.Compare(a[n], b[n])
}

// RunOf is a path's run: its first two components.
func RunOf(p string) string {
	i := strings.IndexByte(p, '/') + 1
	if n := strings.IndexByte(p[i:], '/'); n >= 0 {
		return p[:i+n]
	}
	return p
}

// Below reports whether a path is dir, or in it.
func Below(p, dir string) bool {
	return strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/')
}

// Topmost are those of paths, which ascend, that lie below none of the others.
func Topmost(paths []string) (top []string) {
	for _, p := range paths {
		if n := len(top); n == 0 || !Below(p, top[n-1]) {
			top = append(top, p)
		}
	}
	return top
}

// shared is the length of the longest common prefix.
func shared(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
