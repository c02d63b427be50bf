package share

import (
	"maps"
	"testing"
)

// namesOnly is a State of names alone.
type namesOnly struct {
	State
	all map[string][]byte
}

func (n namesOnly) Name(p string) ([]byte, error) { return n.all[p], nil }

func (n namesOnly) SetNames(set map[string][]byte) error {
	maps.Copy(n.all, set)
	return nil
}

// What was noted of a name since it was read is not noted over.
func TestRevise(t *testing.T) {
	s := &Share{}
	n := namesOnly{all: map[string][]byte{"same": {1}, "other": {2}, "came": {3}}}
	s.o.State = n
	others, err := s.revise(map[string]revised{
		"same": {[]byte{1}, []byte{9}}, "other": {[]byte{1}, []byte{9}},
		"came": {nil, []byte{9}}, "new": {nil, []byte{9}}}, n.SetNames)
	if err != nil || len(others) != 2 || !others["other"] || !others["came"] {
		t.Errorf("%v, %v", others, err)
	}
	for p, want := range map[string]byte{"same": 9, "other": 2, "came": 3, "new": 9} {
		if got := n.all[p]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %v", p, got)
		}
	}
}
