package record

import (
	"fmt"
	"testing"
)

// steps are n steps of a run: a folder, and a file with a plan over eight objects.
func steps(n int) (es []Entry) {
	deps := make([]ID, 8)
	for i := range n {
		for j := range deps {
			deps[j] = id(byte(8*i + j))
			deps[j][0] = byte(j)
		}
		dir := fmt.Sprintf("runs/a/%06d", i)
		es = append(es, Entry{Path: dir, Kind: KindFolder, Origin: me, Version: int64(i) + 1, Mode: 0o755,
			MTime: 1e18},
			Entry{Path: dir + "/model.safetensors", Kind: KindFile, Origin: me, Version: int64(i) + 1, Mode: 0o644,
				MTime: 1e18, File: &File{Size: 336e6, Manifest: hash(1), Plan: Ref{deps[0], 4096, 5_000},
					Deps: append([]ID(nil), deps...)}})
	}
	return es
}

func BenchmarkDecodeHead(b *testing.B) {
	h := exampleHead()
	h.Tables, h.Tail, h.Clock = nil, steps(1000), 1000
	p, err := h.Encode(me)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeHead(me, p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	es := steps(10_000)
	p, t, err := EncodeTable(me, id(1), es)
	if err != nil {
		b.Fatal(err)
	}
	d, err := t.Open(me, p[t.Directory:])
	if err != nil {
		b.Fatal(err)
	}
	reads := 0
	for i := 0; b.Loop(); i++ {
		if _, err := d.Find(es[i%len(es)].Path, read(p, &reads)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodePlan(b *testing.B) {
	p := &Plan{Manifest: hash(1), Objects: []Object{{id(1), ClassData, MaxObject}},
		Record: Record{Place{0, 100, 64}, 200}}
	for i := range 10_000 {
		p.Chunks = append(p.Chunks, Place{0, 6_000 + uint32(i%97), int64(64 + i*6_200/8*8)})
	}
	e, err := p.Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(e)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodePlan(e); err != nil {
			b.Fatal(err)
		}
	}
}
