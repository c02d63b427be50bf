package plans

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"
	"unsafe"

	"ckptfs/formats"
	"ckptfs/formats/dcp"
	"ckptfs/formats/safetensors"
)

// Consolidate plans one file of the tensors of a folder that torch.distributed.checkpoint wrote, as FSDP does:
//
//	sd = {}; _load_state_dict(sd, FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
//	if len(sd) == 1: sd = sd[list(sd)[0]]
//	out = {name: t for name, t in sd if it is a tensor}; metadata = {"format": "pt"}
//
// as accelerate's merge_fsdp_weights has it, which writes several files of more than 10 GB. Names are those of
// .metadata, without the only key that there may be above all others. Objects are left out.
//
// names are those of the files, and files what is known of each. Parts have to cover their tensors without
// overlaps.
func Consolidate(files []*Source, names []string, metadata []byte) (*Plan, error) {
	whole, order, items, err := gathers(files, names, metadata)
	if err != nil {
		return nil, err
	}
	strip := dcp.OnlyKey(dcp.Paths(metadata), items)
	out := make([]output, 0, len(order))
	for _, name := range order {
		g := whole[name]
		if err := g.check(name); err != nil {
			return nil, err
		}
		e := safetensors.Entry{Name: strings.TrimPrefix(name, strip), DType: g.to, Shape: g.shape}
		if len(g.parts) == 1 {
			out = append(out, output{e, g.parts[0].op})
			continue
		}
		out = append(out, output{e, g})
	}
	if len(out) == 0 {
		return nil, none("there are no tensors")
	}
	return plan(out, []safetensors.Pair{{Key: "format", Value: "pt"}})
}

// gathers are the tensors of such a folder by their names, with what is known of their parts, which are not
// checked, and the order in which they were met.
func gathers(files []*Source, names []string, metadata []byte) (
	whole map[string]*gather, order []string, items map[string][]dcp.Item, err error) {
	items, err = dcp.Parse(metadata)
	if errors.Is(err, formats.ErrNotFormat) {
		return nil, nil, nil, none("%v", err)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	whole = map[string]*gather{}
	seen := 0
	for i, s := range files {
		in, ok := items[names[i]]
		if !ok {
			continue
		}
		seen++
		parts, err := partsOf(i, s, in)
		if err != nil {
			return nil, nil, nil, err
		}
		for _, x := range parts {
			g := whole[x.item.Name]
			if g == nil {
				g = &gather{shape: x.item.Shape, to: x.t.DType}
				whole[x.item.Name] = g
				order = append(order, x.item.Name)
			}
			if g.to != x.t.DType || !slices.Equal(g.shape, x.item.Shape) {
				return nil, nil, nil, none("the parts of %q are not of one type and shape", x.item.Name)
			}
			op, err := taken(i, s, *x.t)
			if err != nil {
				return nil, nil, nil, err
			}
			g.parts = append(g.parts, part{x.item.Origin, x.item.Size, op})
		}
	}
	if seen < len(items) {
		return nil, nil, nil, none("%d of the %d files that .metadata names are there", seen, len(items))
	}
	return whole, order, items, nil
}

// found is a tensor of a file, and the item that it is.
type found struct {
	item *dcp.Item
	t    *formats.Tensor
}

// partsOf are the tensors that lie in the items of a file, each of which has one.
func partsOf(i int, s *Source, in []dcp.Item) (out []found, err error) {
	met := make([]bool, len(in))
	for k := range s.Layout.Tensors {
		t := &s.Layout.Tensors[k]
		if t.Region < 0 {
			continue // an empty one has no place
		}
		r := s.Layout.Regions[t.Region]
		at, exact := slices.BinarySearchFunc(in, r.Off, func(x dcp.Item, off int64) int { return cmp.Compare(x.Off, off) })
		if !exact {
			at--
		}
		if at < 0 || r.Off+r.Len > in[at].Off+in[at].Len {
			return nil, none("file %d has a tensor where .metadata says of none", i+1)
		}
		if x := &in[at]; x.Tensor() {
			if met[at] || !slices.Equal(t.Shape, x.Size) {
				return nil, none("file %d has another tensor where %q is", i+1, x.Name)
			}
			met[at] = true
			out = append(out, found{x, t})
		}
	}
	for k := range in {
		if in[k].Tensor() && !met[k] {
			return nil, none("file %d has no tensor where %q is", i+1, in[k].Name)
		}
	}
	return out, nil
}

// gather is a tensor that lies in parts.
type gather struct {
	shape []int64
	to    formats.DType
	parts []part
}

// part is a box of a tensor.
type part struct {
	origin, size []int64
	op           op
}

// maxParts bounds the parts of a tensor.
const maxParts = 4096

// check says whether the parts cover the tensor, each element once.
func (g *gather) check(name string) error {
	if g.to.Bits()%8 != 0 || g.to.Bits() == 0 || len(g.parts) > maxParts {
		return none("%q is of type %s, in %d parts", name, g.to, len(g.parts))
	}
	total := formats.Tensor{DType: g.to, Shape: g.shape}
	left := total.NumElements()
	for i := range g.parts {
		p := &g.parts[i]
		n := int64(1)
		for d := range g.shape {
			if p.origin[d] < 0 || p.size[d] <= 0 || p.origin[d] > g.shape[d]-p.size[d] {
				return none("a part of %q lies outside of it", name)
			}
			n *= p.size[d] // no more than the tensor has, which does not overflow
		}
		left -= n
	}
	if g.overlapping() {
		return none("two parts of %q overlap", name)
	}
	if left != 0 {
		return none("parts of %q are missing", name)
	}
	slices.SortFunc(g.parts, func(a, b part) int { return slices.Compare(a.origin, b.origin) })
	return nil
}

// overlapping reports whether two parts have an element in common. It goes along the dimension with the most
// begins, and compares a part with those that reach beyond its begin: in a grid of n parts with about the square
// root of n, so that a folder of a thousand ranks is looked at in no time.
func (g *gather) overlapping() bool {
	if len(g.shape) == 0 {
		return len(g.parts) > 1
	}
	along, most := 0, 0
	for d := range g.shape {
		begins := make(map[int64]bool, len(g.parts))
		for i := range g.parts {
			begins[g.parts[i].origin[d]] = true
		}
		if len(begins) > most {
			along, most = d, len(begins)
		}
	}
	sorted := make([]*part, len(g.parts))
	for i := range g.parts {
		sorted[i] = &g.parts[i]
	}
	slices.SortFunc(sorted, func(a, b *part) int { return cmp.Compare(a.origin[along], b.origin[along]) })
	var reach []*part
	for _, p := range sorted {
		reach = slices.DeleteFunc(reach, func(q *part) bool {
			return q.origin[along]+q.size[along] <= p.origin[along]
		})
		for _, q := range reach {
			if p.overlaps(q) {
				return true
			}
		}
		reach = append(reach, p)
	}
	return false
}

func (p *part) overlaps(q *part) bool {
	for d := range p.origin {
		if p.origin[d] >= q.origin[d]+q.size[d] || q.origin[d] >= p.origin[d]+p.size[d] {
			return false
		}
	}
	return true
}

func (g *gather) memory() int64 {
	n := int64(unsafe.Sizeof(*g))
	for i := range g.parts {
		n += int64(unsafe.Sizeof(part{})) + 16*int64(len(g.shape)) + g.parts[i].op.memory()
	}
	return n
}

func (g *gather) read(src []io.ReaderAt, p []byte, off int64) error {
	width := int64(g.to.Bits() / 8)
	at := make([]int64, len(g.shape))
	for len(p) > 0 {
		e := off / width
		for d, rest := len(at)-1, e; d >= 0; d-- {
			at[d] = rest % g.shape[d]
			rest /= g.shape[d]
		}
		i := slices.IndexFunc(g.parts, func(x part) bool { return x.has(at) })
		from, n := g.parts[i].run(at, g.shape)
		within := off - e*width
		k := min(int64(len(p)), n*width-within)
		if err := g.parts[i].op.read(src, p[:k], from*width+within); err != nil {
			return err
		}
		p, off = p[k:], off+k
	}
	return nil
}

// has reports whether an element lies in the part.
func (p *part) has(at []int64) bool {
	for d := range at {
		if at[d] < p.origin[d] || at[d] >= p.origin[d]+p.size[d] {
			return false
		}
	}
	return true
}

// run is which element of the part one of the tensor is, and how many follow one another in both from there.
func (p *part) run(at, shape []int64) (from, n int64) {
	inner, full := int64(1), true // elements of the part below dimension d; they are the tensor's
	for d := len(at) - 1; d >= 0; d-- {
		from += (at[d] - p.origin[d]) * inner
		if full {
			n = p.size[d]*inner - from
		}
		full = full && p.size[d] == shape[d]
		inner *= p.size[d]
	}
	return from, n
}
