package proven

import (
	"testing"

	"ckptfs/cas"
)

func TestKnown(t *testing.T) {
	k, h, other := New(nil), cas.Sum([]byte("a")), cas.Sum([]byte("b"))
	want := func(what string, proven, suspect bool) {
		t.Helper()
		if k.Proven(h) != proven || k.Suspect(h) != suspect {
			t.Errorf("%s: proven %v, suspect %v", what, k.Proven(h), k.Suspect(h))
		}
		if k.Proven(other) || k.Suspect(other) {
			t.Errorf("%s: another record is known", what)
		}
	}
	want("at first", false, false)
	k.Proves(h)
	want("read", true, false)
	k.Suspects(h)
	want("then damaged", false, true)
	k.Wrote(h)
	want("written afresh", true, false)
}
