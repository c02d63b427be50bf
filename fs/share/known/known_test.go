package known

import (
	"reflect"
	"testing"

	"ckptfs/cas/remote/record"
)

// What is known of a name is read as it was written, with what the name was about to get, and without.
func TestKnown(t *testing.T) {
	tips := []record.Replaced{{Writer: "a.00000001", Version: 7}, {Writer: "b.00000002", Version: 300}}
	e := &record.Entry{Path: "runs/x/1/f", Kind: record.KindLink, Link: "g"}
	old := &Name{Look: Sum{1}, Content: Sum{2}, Tips: tips[:1]}
	for name, k := range map[string]*Name{
		"known": old, "no tips": {Look: Sum{1}, Content: Sum{2}},
		"about to change": {Look: Sum{1}, Content: Sum{2}, Tips: tips[:1],
			Next: &Name{Content: Sum{3}, Tips: tips}},
		"about to come": {Next: &Name{Content: Sum{3}, Tips: tips}},
	} {
		got, err := Decode(e.Path, k.Encode())
		if err != nil || !reflect.DeepEqual(got, k) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if k.Bare() != (name == "about to come") {
			t.Errorf("%s: bare: %v", name, k.Bare())
		}
		if _, err := Decode(e.Path, append(k.Encode(), 0)); err == nil {
			t.Errorf("%s: more than that is read", name)
		}
	}
	for _, was := range []*Name{nil, old} {
		k, err := Decode(e.Path, was.About(e, tips))
		if err != nil {
			t.Fatal(err)
		}
		if k.Arrived(&record.Entry{Kind: record.KindLink, Link: "h"}, Sum{4}) || k.Bare() != (was == nil) {
			t.Errorf("another arrived: %+v", k)
		}
		if !k.Arrived(e, Sum{4}) || k.Look != (Sum{4}) || k.Content != ContentOf(e) || k.Next != nil ||
			!reflect.DeepEqual(k.Tips, tips) {
			t.Errorf("%+v", k)
		}
		if k.About(e, tips) != nil {
			t.Error("what is known is noted")
		}
	}
}
