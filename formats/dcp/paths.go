package dcp

import (
	"bytes"
	"strconv"
	"strings"

	"ckptfs/formats/pickle"
)

// Paths says where in the saved dict a name of .metadata was: {"model.w": ["model", "w"]}. It has those for
// which that is told (planner_data) and whose keys make up the name, with dots between them; nil: of none.
// Indices of lists are numbers.
func Paths(p []byte) map[string][]string {
	g, err := pickle.Parse(p, pickle.DefaultLimits)
	if err != nil || len(p) > MaxMetadata {
		return nil
	}
	all, ok := field(g.Root(), "planner_data")
	if !ok || all.Kind() != pickle.Dict {
		return nil
	}
	out := make(map[string][]string, min(all.NumPairs(), maxItems))
	for i := range all.NumPairs() {
		k, v := all.Pair(i)
		name := k.Text()
		if _, twice := out[string(name)]; twice || k.Kind() != pickle.Text || len(name) > maxName ||
			v.Kind() != pickle.Tuple {
			return nil
		}
		if at := pathOf(name, v); at != nil {
			out[string(name)] = at
		}
	}
	return out
}

// pathOf are the keys that make up a name; nil: these do not.
func pathOf(name []byte, keys pickle.Value) (at []string) {
	for j := range keys.Len() {
		x := keys.At(j)
		key := x.Text()
		if n, isInt := x.Int(); isInt {
			key = strconv.AppendInt(nil, n, 10)
		} else if x.Kind() != pickle.Text {
			return nil
		}
		rest, ok := bytes.CutPrefix(name, key)
		if last := j == keys.Len()-1; !ok || last != (len(rest) == 0) || !last && rest[0] != '.' {
			return nil
		}
		at = append(at, string(key))
		name = rest[min(1, len(rest)):]
	}
	return at
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
