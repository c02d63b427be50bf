package procs

import "testing"

func TestWithin(t *testing.T) {
	for _, tc := range []struct {
		path, dir string
		want      bool
	}{
		{"/a/b", "/a", true}, {"/a", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false},
		{"/a", "/", true}, {"/", "/", true},
	} {
		if Within(tc.path, tc.dir) != tc.want {
			t.Errorf("%s within %s: not %v", tc.path, tc.dir, tc.want)
		}
	}
}
