package objects_test

import (
	"io"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
)

// BenchmarkBody reads an object of 64 MiB as it is put, its checksum made before, from a store in memory.
func BenchmarkBody(b *testing.B) {
	r := newRig(b)
	var chunks []cas.Hash
	for range 400 {
		chunks = append(chunks, r.store.Alone(cas.Chunk, 160_000))
	}
	m := r.store.File(nil, chunks)
	p := r.packer()
	var o *objects.Object
	p.Put = func(full *objects.Object) error {
		if full.Class == record.ClassData {
			o = full
		}
		return nil
	}
	if err := p.Add(m, nil); err != nil {
		b.Fatal(err)
	}
	if _, err := p.Finish(func([]objects.Filed) ([][]byte, error) { return nil, nil }); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(o.Len)
	for b.Loop() {
		f, err := o.Body(r.store, func(err error) { b.Error(err) }).Open()
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, struct{ io.Reader }{f}); n != o.Len || err != nil {
			b.Fatal(n, err)
		}
	}
}
