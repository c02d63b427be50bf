package record

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCheckPath(t *testing.T) {
	long := strings.Repeat("n", maxComponent)
	deep := "runs" + strings.Repeat("/a", maxDepth-1)
	full := "runs" + strings.Repeat("/"+long, 15) + "/" + strings.Repeat("n", MaxPath-4-15*256-1)
	for _, p := range []string{"runs/a", "exports/x", "runs/a/3/model.pt", "runs/.metadata", "runs/...",
		"runs/\xff", "runs/" + long, deep, full} {
		if err := CheckPath(p); err != nil {
			t.Error(err)
		}
	}
	for _, p := range []string{"", "runs", "exports", "runs/", "/runs/a", "runs//a", "runs/a/", "runs/.",
		"runs/..", "runs/a/../../etc", "./runs/a", "../runs/a", "run/a", "runsa/b", "Runs/a", "etc/passwd",
		"runs/a\x00b", "runs/" + long + "n", deep + "/a", full + "n"} {
		if CheckPath(p) == nil {
			t.Errorf("%.60q is taken for a path", p)
		}
	}
}

// The order is that of the paths' components.
func TestComparePaths(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawPath(t), drawPath(t)
		want := slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
		if got := ComparePaths(a, b); got != want || ComparePaths(b, a) != -want {
			t.Fatalf("%q, %q: %d, want %d", a, b, got, want)
		}
	})
}

// A run is the first two components; what is below a folder is behind it, together.
func TestRunOf(t *testing.T) {
	for p, run := range map[string]string{"runs/a": "runs/a", "runs/a/3": "runs/a",
		"exports/b/c/d": "exports/b"} {
		if got := RunOf(p); got != run {
			t.Errorf("%s: %s", p, got)
		}
	}
	paths := []string{"runs/a/30", "runs/a-b", "runs/a/3/x", "runs/a", "runs/b", "runs/a/3"}
	slices.SortFunc(paths, ComparePaths)
	want := []string{"runs/a", "runs/a/3", "runs/a/3/x", "runs/a/30", "runs/a-b", "runs/b"}
	if !slices.Equal(paths, want) {
		t.Error(paths)
	}
	for p, in := range map[string]bool{"runs/a": true, "runs/a/3": true, "runs/a-b": false, "runs": false} {
		if Below(p, "runs/a") != in {
			t.Errorf("%s below runs/a: %v", p, !in)
		}
	}
}
