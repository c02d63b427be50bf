package safetensors

import (
	"bytes"
	"slices"
	"testing"

	"ckptfs/formats"
)

// What AppendSaved writes is read again: entries in their order, and metadata, also none and an empty one.
func TestSaved(t *testing.T) {
	entries := []Entry{
		{"b", formats.Bool, []int64{3}}, {"b", formats.F32, nil}, {"a", formats.F32, []int64{2}},
		{"u", formats.U64, []int64{1}}, {"h", formats.F16, []int64{0}}, {"c", formats.BF16, []int64{4}},
	}
	entries[0].Name = "z"
	SortSaved(entries)
	var order []string
	for _, e := range entries {
		order = append(order, e.Name)
	}
	if want := []string{"u", "a", "b", "c", "h", "z"}; !slices.Equal(order, want) {
		t.Errorf("the order is %q", order)
	}
	for what, m := range map[string][]Pair{
		"none": nil, "empty": {}, "one": {{"format", "pt"}},
		"several": {{"z", "\"\\\n\x01é"}, {"a", ""}, {"", "x"}},
	} {
		p, err := AppendSaved(nil, entries, m)
		if err != nil {
			t.Fatal(err)
		}
		for i := range entries {
			p = append(p, make([]byte, entries[i].NumBytes())...)
		}
		l, err := Parser{}.Parse(bytes.NewReader(p), int64(len(p)))
		if err != nil || len(l.Tensors) != len(entries) || l.Tensors[0].Name != "u" {
			t.Errorf("%s: %+v, %v", what, l, err)
		}
		got, err := Metadata(bytes.NewReader(p), int64(len(p)))
		if err != nil || !slices.Equal(got, m) || (got == nil) != (m == nil) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	if _, err := AppendSaved(nil, nil, []Pair{{"a", "\xff"}}); err == nil {
		t.Error("metadata that is no UTF-8")
	}
	if _, err := Metadata(bytes.NewReader([]byte("\x05\x00\x00\x00\x00\x00\x00\x00{\"a\":")), 13); err == nil {
		t.Error("a header that is no JSON")
	}
}
