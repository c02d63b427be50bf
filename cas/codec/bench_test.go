package codec

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codectest"
)

// benchmarks are what is encoded with its hint and without, which is to say as planes and by zstd.
var benchmarks = []struct {
	name string
	raw  []byte
	hint Hint
}{
	{"fp32", codectest.Weights(cas.ChunkSize, 4), Hint{"F32", 4}},
	{"bf16", codectest.Weights(cas.ChunkSize, 2), Hint{"BF16", 2}},
	{"fp64", doubles(cas.ChunkSize), Hint{"F64", 8}},
	{"adam", adam(cas.ChunkSize), Hint{"F32", 4}},
	{"rows", rows(cas.ChunkSize), Hint{"F32", 4}},
	{"ids", ids(cas.ChunkSize), Hint{"I64", 8}},
	{"zeros", make([]byte, cas.ChunkSize), Hint{"F32", 4}},
	{"random", codectest.Random(cas.ChunkSize), Hint{"F32", 4}},
	{"text", inputs()["text"], Hint{}},
}

func BenchmarkEncode(b *testing.B) {
	for _, c := range benchmarks {
		for _, h := range []Hint{c.hint, {}} {
			id, dst := Encode(nil, c.raw, h)
			b.Run(fmt.Sprintf("%s/hint=%s/codec=%d", c.name, h.DType, id), func(b *testing.B) {
				b.SetBytes(int64(len(c.raw)))
				b.ReportAllocs()
				for b.Loop() {
					_, dst = Encode(dst[:0], c.raw, h)
				}
				b.ReportMetric(100*float64(len(dst))/float64(len(c.raw)), "%size")
			})
			if c.hint == (Hint{}) {
				break
			}
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, c := range benchmarks {
		for _, h := range []Hint{c.hint, {}} {
			id, stored := Encode(nil, c.raw, h)
			b.Run(fmt.Sprintf("%s/hint=%s/codec=%d", c.name, h.DType, id), func(b *testing.B) {
				b.SetBytes(int64(len(c.raw)))
				b.ReportAllocs()
				dst := make([]byte, 0, len(c.raw))
				for b.Loop() {
					var err error
					if dst, err = Decode(dst[:0], id, stored, len(c.raw)); err != nil {
						b.Fatal(err)
					}
				}
			})
			if c.hint == (Hint{}) {
				break
			}
		}
	}
}

var model = flag.String("model", "", "a .safetensors file of fp32 tensors for BenchmarkModel")

// BenchmarkModel encodes and decodes real weights: the file's own, and as the bf16 that a cast would make of
// them.
func BenchmarkModel(b *testing.B) {
	if *model == "" {
		b.Skip("no -model")
	}
	p, err := os.ReadFile(*model)
	if err != nil {
		b.Fatal(err)
	}
	p = p[8+le.Uint64(p):]
	var half []byte
	for i := 0; i+4 <= len(p); i += 4 {
		v := le.Uint32(p[i:])
		half = le.AppendUint16(half, uint16((v+0x7fff+v>>16&1)>>16))
	}
	for _, c := range []struct {
		raw  []byte
		hint Hint
	}{{p, Hint{"F32", 4}}, {p, Hint{}}, {half, Hint{"BF16", 2}}, {half, Hint{}}} {
		name := c.hint.DType
		if name == "" {
			name = fmt.Sprintf("no hint, %d MB", len(c.raw)>>20)
		}
		var raws, stored [][]byte
		var ids []byte
		size := 0
		for p := c.raw; len(p) >= cas.ChunkSize; p = p[cas.ChunkSize:] {
			id, out := Encode(nil, p[:cas.ChunkSize], c.hint)
			raws, stored, ids = append(raws, p[:cas.ChunkSize]), append(stored, out), append(ids, id)
			size += len(out)
		}
		dst := make([]byte, 0, 2*cas.ChunkSize)
		b.Run(name+"/encode", func(b *testing.B) {
			b.SetBytes(cas.ChunkSize)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				_, dst = Encode(dst[:0], raws[i%len(raws)], c.hint)
			}
			b.ReportMetric(100*float64(size)/float64(len(raws)*cas.ChunkSize), "%size")
		})
		b.Run(name+"/decode", func(b *testing.B) {
			b.SetBytes(cas.ChunkSize)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				k := i % len(raws)
				if dst, err = Decode(dst[:0], ids[k], stored[k], cas.ChunkSize); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBytes is of what is done to a plane before it is coded or after, at each level.
func BenchmarkBytes(b *testing.B) {
	const n = slabBytes / 4
	s, base, p := new(planeState), codectest.Weights(4*n, 4), codectest.Random(n)
	shape := chooseGroups(base, 4, 23)
	g := s.sortBy(shape, base, 4)
	sparse, bitmap, rest := bytes.Clone(p), make([]byte, n/8), make([]byte, n+64)
	for i := range sparse {
		sparse[i] *= sparse[i] >> 1 & 1
	}
	planes, rooms := [][]byte{p, bytes.Clone(p), bytes.Clone(p)}, make([][]byte, 3)
	for i := range rooms {
		rooms[i] = make([]byte, n+maxGroups*gap)
	}
	room := rooms[0]
	for _, c := range []struct {
		name string
		do   func()
	}{
		{fmt.Sprintf("number%d", shape.n), func() { s.sortBy(shape, base, 4) }},
		{fmt.Sprintf("sort%d", shape.n), func() { g.sort(rooms[:1], planes[:1]) }},
		{fmt.Sprintf("unsort%d", shape.n), func() { g.unsort(planes[:1], rooms[:1]) }},
		{fmt.Sprintf("sort%d of 2", shape.n), func() { g.sort(rooms[:2], planes[:2]) }},
		{fmt.Sprintf("sort%d of 3", shape.n), func() { g.sort(rooms, planes) }},
		{fmt.Sprintf("unsort%d of 3", shape.n), func() { g.unsort(planes, rooms) }},
		{"pack", func() { pack(rest, bitmap, sparse) }},
		{"scatter", func() { scatter(sparse, bitmap, &s.rest) }},
		{"union", func() { union(room[:n], s.group[:n], [][]byte{p, sparse, p, sparse}) }},
	} {
		codectest.Levels(func(how string) {
			b.Run(c.name+"/"+how, func(b *testing.B) {
				b.SetBytes(n)
				for b.Loop() {
					c.do()
				}
			})
		})
	}
}
