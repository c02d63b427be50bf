package dcp

import (
	"strconv"
	"strings"

	"ckptfs/formats/pickle"
)

// Paths says where in the saved dict a name of .metadata was: {"model.w": ["model", "w"]}. It has those for
// which that is told (planner_data); nil: of none. Indices of lists are numbers.
func Paths(p []byte) map[string][]string {
	g, err := pickle.Parse(p, pickle.DefaultLimits)
	if err != nil || len(p) > MaxMetadata {
		return nil
	}
	all, ok := field(g.Root(), "planner_data")
	if !ok || all.Kind() != pickle.Dict {
		return nil
	}
	out := make(map[string][]string, all.NumPairs())
	for i := range all.NumPairs() {
		k, v := all.Pair(i)
		if k.Kind() != pickle.Text || v.Kind() != pickle.Tuple {
			return nil
		}
		var at []string
		for j := range v.Len() {
			x := v.At(j)
			n, isInt := x.Int()
			switch {
			case x.Kind() == pickle.Text:
				at = append(at, string(x.Text()))
			case isInt:
				at = append(at, strconv.FormatInt(n, 10))
			default:
				return nil
			}
		}
		out[string(k.Text())] = at
	}
	return out
}

// OnlyKey is the key, and a dot, that all names of a .metadata are below; "": there is none. paths are those
// of Paths, and items those of Parse.
func OnlyKey(paths map[string][]string, items map[string][]Item) string {
	key := ""
	for _, in := range items {
		for i := range in {
			p := paths[in[i].Name]
			if len(p) < 2 || key != "" && p[0] != key || strings.Join(p, ".") != in[i].Name {
				return ""
			}
			key = p[0]
		}
	}
	if key == "" {
		return ""
	}
	return key + "."
}
