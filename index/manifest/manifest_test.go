package manifest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/formats"
)

func hash(b byte) (h cas.Hash) {
	for i := range h {
		h[i] = b
	}
	return h
}

// example has every op, region kind and stride mode.
func example() *Manifest {
	return &Manifest{
		Format: "torch-zip",
		Size:   100 + 600_000 + 24 + 40 + 16 + 8,
		Objects: []Object{
			{Digest: hash(0xaa), Len: 148},
			{Digest: hash(0xbb), Len: 600_000, List: true},
			{Digest: hash(0xcc), Len: 32},
		},
		Extents: []Extent{
			{Len: 100, Object: 0},
			{Len: 600_000, Object: 1},
			{Len: 24, Object: -1},
			{Len: 40, Object: 0, ObjOff: 100},
			{Len: 10, Object: 2, ObjOff: 16},
			{Len: 6, Object: 2, ObjOff: 26},
			{Len: 8, Object: 0, ObjOff: 140},
		},
		Regions: []formats.Region{
			{Off: 0, Len: 100, Kind: formats.Blob},
			{Off: 100, Len: 600_000, Kind: formats.Data},
			{Off: 600_100, Len: 24, Kind: formats.Pad},
			{Off: 600_124, Len: 40, Kind: formats.Blob},
			{Off: 600_164, Len: 16, Kind: formats.Data},
			{Off: 600_180, Len: 8, Kind: formats.Blob},
		},
		Tensors: []formats.Tensor{
			{Name: "layer.0.bias", DType: formats.BF16, Shape: []int64{8}, Region: 4, Stride: []int64{1}},
			{Name: "layer.0.step", DType: formats.I64, Region: 4, Offset: 8},
			{Name: "layer.0.step.empty", DType: formats.BF16, Shape: []int64{0, 3}, Region: -1},
			{Name: "weight", DType: formats.BF16, Shape: []int64{300, 1000}, Stride: []int64{1, 300},
				Region: 1},
		},
	}
}

func unaligned() *Manifest {
	return &Manifest{
		Format:  "blob",
		Size:    30,
		Objects: []Object{{Digest: hash(0x11), Len: 20}},
		Extents: []Extent{{Len: 20, Object: 0}, {Len: 10, Object: -1}},
		Regions: []formats.Region{{Off: 0, Len: 25, Kind: formats.Blob},
			{Off: 25, Len: 5, Kind: formats.Pad}},
		Partial: true,
	}
}

func TestCheck(t *testing.T) {
	for name, breakIt := range map[string]func(*Manifest){
		"size":               func(m *Manifest) { m.Size++ },
		"negative size":      func(m *Manifest) { m.Size = -1 },
		"object length":      func(m *Manifest) { m.Objects[0].Len = 0 },
		"object too long":    func(m *Manifest) { m.Objects[1].Len = MaxObject + 1 },
		"chunk too long":     func(m *Manifest) { m.Objects[0].Len = cas.MaxChunk + 1 },
		"extent length":      func(m *Manifest) { m.Extents[0].Len = 0 },
		"extent overflow":    func(m *Manifest) { m.Extents[2].Len = math.MaxInt64 },
		"object range":       func(m *Manifest) { m.Extents[0].Object = 3 },
		"object below":       func(m *Manifest) { m.Extents[0].Object = -2 },
		"offset of zeros":    func(m *Manifest) { m.Extents[2].ObjOff = 1 },
		"offset range":       func(m *Manifest) { m.Extents[3].ObjOff = 109 },
		"offset overflow":    func(m *Manifest) { m.Extents[3].ObjOff = math.MaxInt64 },
		"region gap":         func(m *Manifest) { m.Regions[1].Off++ },
		"region kind":        func(m *Manifest) { m.Regions[1].Kind = 3 },
		"tensor region":      func(m *Manifest) { m.Tensors[0].Region = 3 },
		"tensor region high": func(m *Manifest) { m.Tensors[0].Region = 6 },
		"tensor region low":  func(m *Manifest) { m.Tensors[2].Region = -2 },
		"tensor bounds":      func(m *Manifest) { m.Tensors[0].Offset = 1 },
		"tensor type":        func(m *Manifest) { m.Tensors[0].DType = "F24" },
		"stride count":       func(m *Manifest) { m.Tensors[2].Stride = []int64{1} },
	} {
		m := example()
		breakIt(m)
		if _, err := m.Encode(); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

// Every prefix of an encoding, and every encoding with a byte more, is refused.
func TestCut(t *testing.T) {
	p, _ := example().Encode()
	for n := range p {
		if _, err := Decode(p[:n]); !errors.Is(err, cas.ErrCorrupt) {
			t.Fatalf("%d bytes of %d: %v", n, len(p), err)
		}
	}
	if _, err := Decode(append(p, 0)); !errors.Is(err, cas.ErrCorrupt) {
		t.Error(err)
	}
	newer := bytes.Replace(p, []byte("CKM1"), []byte("CKM2"), 1)
	if _, err := Decode(newer); !errors.Is(err, cas.ErrNewer) {
		t.Error(err)
	}
}

// Counts past the bytes that follow take no memory.
func TestBombs(t *testing.T) {
	head := append([]byte("CKM1\x00\x04blob"), 10)
	huge := binary.AppendUvarint(nil, 1<<40)
	one := func(parts ...[]byte) []byte { return bytes.Join(append([][]byte{head}, parts...), nil) }
	long := strings.Repeat("n", 1<<20)
	names := one([]byte{0, 1, 0, 10})
	names = str(num(num(names, 200), 1), "U8")
	names = append(str(num(names, 0), long), 0, 1, 0, 1, 0)
	for range 199 {
		names = append(str(num(names, 1<<20), ""), 0, 1, 0, 0, 0)
	}
	for name, p := range map[string][]byte{
		"objects": one(huge),
		"extents": one([]byte{0}, huge),
		"tensors": one([]byte{0, 1, 0, 10}, huge),
		"types":   one([]byte{0, 1, 0, 10, 1}, huge),
		"names":   names,
	} {
		allocs := testing.AllocsPerRun(1, func() {
			if _, err := Decode(p); err == nil {
				t.Errorf("%s: decoded", name)
			}
		})
		if allocs > 1000 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
	if _, err := Decode(names); !errors.Is(err, cas.ErrTooLarge) {
		t.Errorf("names: %v", err)
	}
}

func TestList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		grid := rapid.Bool().Draw(t, "grid")
		spans := make([]Span, rapid.IntRange(1, 20).Draw(t, "chunks"))
		for i := range spans {
			spans[i] = Span{hash(byte(i)), cas.ChunkSize}
			if !grid || i == len(spans)-1 {
				spans[i].Len = rapid.Uint32Range(1, cas.ChunkSize).Draw(t, "length")
			}
		}
		p := EncodeList(spans)
		got, err := DecodeList(p)
		if err != nil || !reflect.DeepEqual(got, spans) {
			t.Fatalf("%v, %v", got, err)
		}
		if grid && len(p) > 8+32*len(spans) {
			t.Fatalf("%d bytes for %d chunks on the grid", len(p), len(spans))
		}
		if _, err := DecodeList(p[:len(p)-1]); !errors.Is(err, cas.ErrCorrupt) {
			t.Fatalf("cut short: %v", err)
		}
	})
	for _, p := range []string{"", "CKL1", "CKL1\x00\x01", "CKL1\x01\x00", "CKL1\x02", "XXXX"} {
		if _, err := DecodeList([]byte(p)); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%q: %v", p, err)
		}
	}
	if _, err := DecodeList([]byte("CKL2\x00\x01")); !errors.Is(err, cas.ErrNewer) {
		t.Error(err)
	}
}

// draw makes any manifest that Check takes.
func draw(t *rapid.T) *Manifest {
	m := &Manifest{Format: rapid.SampledFrom([]string{"", "blob", "safetensors"}).Draw(t, "format")}
	for i := range rapid.IntRange(0, 6).Draw(t, "objects") {
		m.Objects = append(m.Objects, Object{
			Digest: hash(byte(i)), Len: rapid.Int64Range(1, 5000).Draw(t, "length"),
			List: rapid.Bool().Draw(t, "list"),
		})
	}
	for range rapid.IntRange(0, 12).Draw(t, "extents") {
		e := Extent{Object: rapid.Int32Range(-1, int32(len(m.Objects)-1)).Draw(t, "object")}
		if e.Object < 0 {
			e.Len = rapid.Int64Range(1, 1<<40).Draw(t, "zeros")
		} else {
			n := m.Objects[e.Object].Len
			if rapid.Bool().Draw(t, "part") {
				e.ObjOff = rapid.Int64Range(0, n-1).Draw(t, "offset")
			}
			e.Len = n - e.ObjOff
			if rapid.Bool().Draw(t, "short") {
				e.Len = rapid.Int64Range(1, e.Len).Draw(t, "length")
			}
		}
		m.Extents = append(m.Extents, e)
		m.Size += e.Len
	}
	aligned := rapid.Bool().Draw(t, "aligned")
	next := 0
	for off := int64(0); off < m.Size; {
		n := int64(0)
		if aligned {
			for range rapid.IntRange(1, 3).Draw(t, "extents") {
				if next < len(m.Extents) {
					n += m.Extents[next].Len
					next++
				}
			}
		} else {
			n = rapid.Int64Range(1, m.Size-off).Draw(t, "region")
		}
		m.Regions = append(m.Regions, formats.Region{Off: off, Len: n,
			Kind: formats.Kind(rapid.IntRange(0, 2).Draw(t, "kind"))})
		off += n
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "tensors") {
		x := formats.Tensor{
			Name: rapid.SampledFrom([]string{"", "a", "layer.0.weight", "layer.0.bias",
				"layer.10.bias"}).Draw(t, "name"), Region: -1,
			DType: rapid.SampledFrom([]formats.DType{formats.U8, formats.F32, formats.F4}).Draw(t, "type"),
			Shape: []int64{int64(i), 0, 3},
		}
		switch rapid.IntRange(0, 2).Draw(t, "strides") {
		case 1:
			x.Stride = []int64{3, 3, 1}
		case 2:
			x.Stride = []int64{rapid.Int64().Draw(t, "stride"), 1, 2}
		}
		if len(m.Regions) > 0 {
			if r := rapid.IntRange(0, len(m.Regions)-1).Draw(t,
				"region"); m.Regions[r].Kind == formats.Data && x.DType != formats.F4 {
				x.Region, x.Shape, x.Stride = r, nil, nil
				if x.DType == formats.F32 && m.Regions[r].Len < 4 {
					x.DType = formats.U8
				}
			}
		}
		m.Tensors = append(m.Tensors, x)
	}
	return m
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := draw(t)
		p, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(p)
		if err != nil {
			t.Fatalf("%v\n%s", err, annotate(p))
		}
		if !reflect.DeepEqual(got, m) {
			t.Fatalf("decoded\n%+v, want\n%+v\n%s", got, m, annotate(p))
		}
		if objects, err := Objects(p); err != nil || !reflect.DeepEqual(objects, m.Objects) {
			t.Fatalf("objects %+v, %v, want %+v", objects, err, m.Objects)
		}
	})
}

// Objects of what is cut short within them, or of no manifest, are none.
func TestObjectsRefused(t *testing.T) {
	p, err := example().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(magic) + 20 {
		if got, err := Objects(p[:n]); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("of %d bytes: %v, %v", n, got, err)
		}
	}
}

// decodeBound is what Decode may allocate for n bytes: structures of up to 200 bytes a byte, and names that
// share their beginnings.
func decodeBound(n int) uint64 { return 256<<10 + 200*uint64(n) + 2*maxNames }

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Whatever is accepted is sound and encodes to the same bytes.
func FuzzDecode(f *testing.F) {
	for _, m := range []*Manifest{example(), unaligned(), {Format: "blob"}} {
		p, err := m.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var m *Manifest
		var err error
		if took := allocated(func() { m, err = Decode(p) }); took > decodeBound(len(p)) {
			t.Fatalf("%d bytes of memory for %d", took, len(p))
		}
		if err != nil {
			if !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer) &&
				!errors.Is(err, cas.ErrTooLarge) {
				t.Fatalf("untyped error: %v", err)
			}
			return
		}
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		q, err := m.Encode()
		if err != nil || !bytes.Equal(p, q) {
			t.Fatalf("%x\nencodes to %x (%v)", p, q, err)
		}
	})
}

func FuzzDecodeList(f *testing.F) {
	f.Add(EncodeList([]Span{{hash(1), cas.ChunkSize}, {hash(2), 5}}))
	f.Add(EncodeList([]Span{{hash(1), 5}, {hash(2), 5}}))
	f.Fuzz(func(t *testing.T, p []byte) {
		var spans []Span
		var err error
		if took := allocated(func() { spans, err = DecodeList(p) }); took > 64<<10+8*uint64(len(p)) {
			t.Fatalf("%d bytes of memory for %d", took, len(p))
		}
		if err != nil {
			return
		}
		if q := EncodeList(spans); !bytes.Equal(p, q) {
			t.Fatalf("%x\nencodes to %x", p, q)
		}
	})
}

// A manifest of a model of 32 layers takes little more than its digests.
func TestCompact(t *testing.T) {
	m := &Manifest{Format: "safetensors"}
	m.Objects = append(m.Objects, Object{Digest: hash(0), Len: 30_000})
	add := func(e Extent, kind formats.Kind) {
		m.Extents = append(m.Extents, e)
		m.Regions = append(m.Regions, formats.Region{Off: m.Size, Len: e.Len, Kind: kind})
		m.Size += e.Len
	}
	add(Extent{Len: 30_000, Object: 0}, formats.Blob)
	for l := range 32 {
		for _, w := range []string{"mlp.down_proj", "mlp.gate_proj", "mlp.up_proj", "self_attn.k_proj",
			"self_attn.o_proj", "self_attn.q_proj"} {
			h := hash(byte(l))
			copy(h[:], w)
			m.Objects = append(m.Objects, Object{Digest: h, Len: 4096 * 4096 * 2, List: true})
			add(Extent{Len: 4096 * 4096 * 2, Object: int32(len(m.Objects) - 1)}, formats.Data)
			m.Tensors = append(m.Tensors, formats.Tensor{
				Name: fmt.Sprintf("model.layers.%d.%s.weight", l, w), DType: formats.BF16,
				Shape: []int64{4096, 4096}, Region: len(m.Regions) - 1,
			})
		}
	}
	p, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if per := float64(len(p))/float64(len(m.Tensors)) - cas.HashSize; per > 36 {
		t.Errorf("%.1f bytes a tensor beside the digest", per)
	}
}
