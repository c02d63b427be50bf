package dcp

import (
	"strconv"

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
