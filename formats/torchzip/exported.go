package torchzip

import (
	"encoding/json"
	"io"
	"maps"
	"path"
	"slices"

	"ckptfs/formats"
	"ckptfs/formats/zipdir"
)

const (
	configSuffix = "_config.json"
	maxConfig    = 16 << 20
	strided      = 7 // schema.Layout.Strided
)

// scalarTypes has the numbers of torch/_export/serde/schema.py, ScalarType.
var scalarTypes = map[int]formats.DType{
	1: formats.U8, 2: formats.I8, 3: formats.I16, 4: formats.I32, 5: formats.I64, 6: formats.F16,
	7: formats.F32, 8: formats.F64, 10: formats.C64, 11: formats.C128, 12: formats.Bool, 13: formats.BF16,
	28: formats.U16, 29: formats.F8E4M3, 30: formats.F8E5M2, 31: formats.F8E4M3FZ, 32: formats.F8E5M2FZ,
	33: formats.F8E8M0, 34: formats.U32, 35: formats.U64,
}

// symInt is a number that may also be an expression; then as_int is missing.
type symInt struct {
	Int *int64 `json:"as_int"`
}

type payload struct {
	Path   string `json:"path_name"`
	Pickle bool   `json:"use_pickle"`
	Meta   *struct {
		DType   int      `json:"dtype"`
		Sizes   []symInt `json:"sizes"`
		Strides []symInt `json:"strides"`
		Offset  symInt   `json:"storage_offset"`
		Layout  int      `json:"layout"`
	} `json:"tensor_meta"`
}

// readExported reads the configurations of a .pt2, and adds the tensors that they name.
func (a *archive) readExported(r io.ReaderAt, l *formats.Layout) error {
	byName := make(map[string]int, len(a.storages))
	for i := range a.storages {
		byName[a.storages[i].Name] = i
	}
	used := make(map[int]bool)
	seen := make(map[string]bool)
	for i := range a.configs {
		c := &a.configs[i]
		payloads, err := readConfig(r, c)
		if err != nil {
			return err
		}
		if payloads == nil {
			l.Leave("configurations are not understood")
		}
		for _, name := range slices.Sorted(maps.Keys(payloads)) {
			p := payloads[name]
			k, ok := byName[path.Dir(c.Name)+"/"+p.Path]
			t := formats.Tensor{Name: name}
			if !ok || seen[name] {
				l.Leave("tensors have no data of their own, or the name of another")
				continue
			}
			used[k] = true
			if p.Pickle {
				l.Leave("tensors are pickled, as those of subclasses are")
				continue
			}
			if !p.describe(&t, a.storages[k].Len) {
				l.Leave("tensors are of types that are not known, not strided, or not within their data")
				continue
			}
			if t.NumElements() == 0 {
				t.Region, t.Offset = -1, 0
			} else {
				t.Region = a.regions[k]
			}
			seen[name] = true
			l.Tensors = append(l.Tensors, t)
		}
	}
	for i := range a.storages {
		if !used[i] && a.storages[i].Len > 0 {
			l.Leave("storages are of no tensor that has a name")
		}
	}
	return nil
}

// readConfig returns the payloads of a configuration by their tensors' names, or nil for one that can't be
// understood.
func readConfig(r io.ReaderAt, c *zipdir.Record) (map[string]payload, error) {
	if c.Len > maxConfig {
		return nil, nil
	}
	p := make([]byte, c.Len)
	if err := formats.ReadFull(r, p, c.Off); err != nil {
		return nil, err
	}
	var config struct {
		Config map[string]payload `json:"config"`
	}
	if json.Unmarshal(p, &config) != nil {
		return nil, nil
	}
	return config.Config, nil
}

// describe sets t's type and place in a storage of n bytes.
func (p *payload) describe(t *formats.Tensor, n int64) bool {
	if p.Meta == nil || p.Meta.Layout != strided || p.Meta.Offset.Int == nil ||
		len(p.Meta.Sizes) != len(p.Meta.Strides) {
		return false
	}
	t.DType = scalarTypes[p.Meta.DType]
	width := int64(t.DType.Bits() / 8)
	if width == 0 || *p.Meta.Offset.Int < 0 || *p.Meta.Offset.Int > n/width {
		return false
	}
	t.Offset = *p.Meta.Offset.Int * width
	t.Shape, t.Stride = make([]int64, len(p.Meta.Sizes)), make([]int64, len(p.Meta.Sizes))
	for i, s := range p.Meta.Sizes {
		if s.Int == nil || p.Meta.Strides[i].Int == nil {
			return false
		}
		t.Shape[i], t.Stride[i] = *s.Int, *p.Meta.Strides[i].Int
	}
	if t.CheckBounds(n) != nil {
		return false
	}
	if t.Contiguous() {
		t.Stride = nil
	}
	return true
}
