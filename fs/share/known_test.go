package share

import (
	"reflect"
	"testing"

	"ckptfs/cas/remote/record"
)

// What is known of a name is read as it was written, with what the name was about to get, and without.
func TestKnown(t *testing.T) {
	tips := []record.Replaced{{Writer: "a.00000001", Version: 7}, {Writer: "b.00000002", Version: 300}}
	e := &record.Entry{Path: "runs/x/1/f", Kind: record.KindLink, Link: "g"}
	old := &known{look: sum{1}, content: sum{2}, tips: tips[:1]}
	for name, k := range map[string]*known{
		"known": old, "no tips": {look: sum{1}, content: sum{2}},
		"about to change": {look: sum{1}, content: sum{2}, tips: tips[:1],
			next: &known{content: sum{3}, tips: tips}},
		"about to come": {next: &known{content: sum{3}, tips: tips}},
	} {
		got, err := decodeKnown(e.Path, k.encode())
		if err != nil || !reflect.DeepEqual(got, k) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if k.bare() != (name == "about to come") {
			t.Errorf("%s: bare: %v", name, k.bare())
		}
		if _, err := decodeKnown(e.Path, append(k.encode(), 0)); err == nil {
			t.Errorf("%s: more than that is read", name)
		}
	}
	for _, was := range []*known{nil, old} {
		k, err := decodeKnown(e.Path, was.about(e, tips))
		if err != nil {
			t.Fatal(err)
		}
		if k.arrived(&record.Entry{Kind: record.KindLink, Link: "h"}, sum{4}) || k.bare() != (was == nil) {
			t.Errorf("another arrived: %+v", k)
		}
		if !k.arrived(e, sum{4}) || k.look != (sum{4}) || k.content != contentOf(e) || k.next != nil ||
			!reflect.DeepEqual(k.tips, tips) {
			t.Errorf("%+v", k)
		}
		if k.about(e, tips) != nil {
			t.Error("what is known is noted")
		}
	}
}
