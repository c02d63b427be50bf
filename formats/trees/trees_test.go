package trees

import (
	"bytes"
	"testing"

	"ckptfs/formats/fixture"
)

var bound = fixture.Bound{Fixed: 64 << 10}

func FuzzParse(f *testing.F) { fixture.Fuzz(f, Parser{}, "trees/*", bound) }

func TestParse(t *testing.T) {
	text := []byte("tree\nversion=v4\nnum_class=1\n\nend of trees\n\npandas_categorical:null\n")
	for name, c := range map[string]struct {
		p    []byte
		want string
	}{
		"json":           {fixture.Read(t, "trees/xgb.json"), "xgboost-json"},
		"ubj":            {fixture.Read(t, "trees/xgb.ubj"), "xgboost-ubj"},
		"text":           {text, "lightgbm"},
		"cut json":       {fixture.Read(t, "trees/xgb.json")[:500], ""},
		"cut ubj":        {fixture.Read(t, "trees/xgb.ubj")[:501], ""},
		"cut text":       {text[:20], ""},
		"other json":     {[]byte(`{"teacher":{}}`), ""},
		"json of spaces": {append([]byte(" "), fixture.Read(t, "trees/xgb.json")...), ""},
		"empty":          {nil, ""},
	} {
		l := fixture.Check(t, Parser{}, c.p, bound)
		if (l == nil) != (c.want == "") || l != nil && (l.Format != c.want || !l.Fine ||
			len(l.Regions) != 1) {
			t.Errorf("%s: %+v", name, l)
		}
		if l != nil && !Sniff(bytes.Clone(c.p), int64(len(c.p))) {
			t.Errorf("%s: Sniff says no", name)
		}
	}
}
