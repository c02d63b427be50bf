package trust

import (
	"errors"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
)

// Of 64 chunks that are read again and again, one a round is held against its hash, and each in its turn.
func TestSpot(t *testing.T) {
	const of = 64 // as docs/reliability.md says
	var tr Trust
	seen := map[int]bool{}
	for range of {
		n := 0
		for place := range of {
			if tr.spot() {
				n++
				seen[place] = true
			}
		}
		if n != 1 {
			t.Fatalf("%d of %d", n, of)
		}
	}
	if len(seen) != of {
		t.Errorf("%d of %d chunks", len(seen), of)
	}
}

// What is no chunk is held against its hash whatever the trust.
func TestCheck(t *testing.T) {
	content, other := []byte("a content"), []byte("another")
	h := cas.Sum(other)
	for _, kind := range []cas.Kind{cas.List, cas.Manifest, cas.Event} {
		var tr Trust
		rec := &segment.Record{Kind: kind, Hash: h, XXH3: cas.SumXXH3(content)}
		if err := tr.Check(rec, content, h); !errors.Is(err, cas.ErrCorrupt) || tr.Is() {
			t.Errorf("%v: %v", kind, err)
		}
	}
	var tr Trust
	rec := &segment.Record{Kind: cas.Chunk, Hash: h, XXH3: cas.SumXXH3(other)}
	for i := range 2 * spot { // rot: neither fits
		if err := tr.Check(rec, content, h); !errors.Is(err, cas.ErrCorrupt) || !tr.Is() {
			t.Fatalf("%d: %v", i, err)
		}
	}
}

func TestEncoded(t *testing.T) {
	raw, bad := []byte("what was hashed"), []byte("what was Hashed")
	x := cas.SumXXH3(raw)
	for i, c := range []struct {
		id           byte
		raw, payload []byte
		ok           bool
	}{
		{codec.Raw, raw, raw, true}, {codec.Raw, raw, bad, false},
		{codec.Delta, raw, bad, true}, {codec.Delta, bad, raw, false},
	} {
		if err := Encoded(c.id, c.raw, c.payload, x); (err == nil) != c.ok {
			t.Errorf("%d: %v", i, err)
		}
	}
}
