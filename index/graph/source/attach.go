package source

import (
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/index/graph"
)

// attach gives the vertices those of the file's tensors that belong to them by name. They are no part of the
// identity, so that a query, which has no file, still finds the graph.
func (k *keras) attach(all []formats.Tensor) {
	byPath, byName := map[string][]int{}, map[string][]int{}
	for i := range k.g.Vertices {
		byPath[k.saved[i]] = append(byPath[k.saved[i]], i)
		name := k.g.Vertices[i].Name
		name, _, _ = strings.Cut(name[strings.LastIndexByte(name, '/')+1:], callMark)
		byName[name] = append(byName[name], i)
	}
	for i := range all {
		t := &all[i]
		vs, slot := layersSaved(t.Name, byPath)
		if vs == nil {
			vs, slot = layersNamed(t.Name, byName)
		}
		for _, v := range vs {
			k.g.Vertices[v].Params = append(k.g.Vertices[v].Params,
				graph.Param{Tensor: t.Name, Slot: slot, DType: t.DType, Shape: slices.Clone(t.Shape),
					Attached: true})
		}
	}
	for i := range k.g.Vertices {
		slices.SortStableFunc(k.g.Vertices[i].Params, func(a, b graph.Param) int {
			return strings.Compare(a.Slot, b.Slot)
		})
	}
}

// layersSaved finds the layer whose path is in name, from its first "layers/" on: the longest such.
func layersSaved(name string, byPath map[string][]int) (vertices []int, slot string) {
	from := strings.Index(name, "layers/")
	if from < 0 || from > 0 && name[from-1] != '/' {
		return nil, ""
	}
	for end := len(name); end > from; end = strings.LastIndexByte(name[:end], '/') {
		if end < len(name) {
			if vs := byPath[name[from:end+1]]; vs != nil {
				return vs, name[end+1:]
			}
		}
	}
	return nil, ""
}

// layersNamed finds the layer whose name is a component of name but the last: the last such.
func layersNamed(name string, byName map[string][]int) (vertices []int, slot string) {
	for end := strings.LastIndexByte(name, '/'); end > 0; {
		from := strings.LastIndexByte(name[:end], '/')
		if vs := byName[name[from+1:end]]; vs != nil {
			return vs, name[end+1:]
		}
		end = from
	}
	return nil, ""
}

// snakeCase is a class's name as Keras writes it: MultiHeadAttention is multi_head_attention, Conv2D is
// conv2d.
func snakeCase(s string) string {
	var b strings.Builder
	upper := func(i int) bool { return i < len(s) && 'A' <= s[i] && s[i] <= 'Z' }
	lower := func(i int) bool { return i >= 0 && i < len(s) && 'a' <= s[i] && s[i] <= 'z' }
	for i := range len(s) {
		c := s[i]
		word := '0' <= c && c <= '9' || c == '_' || upper(i) || lower(i)
		if !word {
			continue
		}
		if i > 0 && upper(i) && (lower(i+1) || lower(i-1)) {
			b.WriteByte('_')
		}
		if upper(i) {
			c += 'a' - 'A'
		}
		b.WriteByte(c)
	}
	return b.String()
}
