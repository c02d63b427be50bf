package pack

import (
	"bytes"
	"sync"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/store"
	"ckptfs/formats"
	"ckptfs/formats/detect"
)

// placed is a batch that looks whether chunks lie in the file where it is told that they do.
type placed struct {
	*store.Batch
	t       *testing.T
	src     []byte
	mu      sync.Mutex
	in, out int
}

func (b *placed) PutRelated(kind cas.Kind, h cas.Hash, raw []byte, hint codec.Hint, rel cas.Related) (
	bool, byte, error) {
	b.mu.Lock()
	switch {
	case kind != cas.Chunk:
	case !rel.InFile:
		b.out += len(raw)
	case !bytes.HasPrefix(b.src[rel.Off:], raw):
		b.t.Errorf("%d bytes do not lie at %d", len(raw), rel.Off)
	default:
		b.in += len(raw)
	}
	b.mu.Unlock()
	return b.Batch.PutRelated(kind, h, raw, hint, rel)
}

// TestPlaces: who puts a chunk says where in the file it lies, unless it is made of several pieces.
func TestPlaces(t *testing.T) {
	b := memBench(t)
	b.p.record = 60_000
	pieces := random(1_000_000, 5)
	apart := &formats.Layout{Format: "pieces"}
	for off := int64(0); off < int64(len(pieces)); off += 100_000 {
		apart.Regions = append(apart.Regions, formats.Region{Off: off, Len: 20_000},
			formats.Region{Off: off + 20_000, Len: 80_000, Kind: formats.Data})
	}
	var before *Result
	for _, c := range []struct {
		name string
		src  []byte
		l    *formats.Layout
		out  int
	}{
		{name: "crowded", src: crowdOf(2000, 256, "w", 1)},
		{name: "document", src: boosted(500)},
		{name: "document that has grown", src: boosted(510)},
		{name: "pieces", src: pieces, l: apart, out: 200_000},
	} {
		l, rel := c.l, Related{}
		if l == nil {
			var err error
			if l, err = detect.Detect(bytes.NewReader(c.src), int64(len(c.src))); err != nil {
				t.Fatal(err)
			}
		}
		if before != nil && before.Manifest.Format == l.Format {
			rel.Before = known(before.Manifest)
		}
		p := &placed{Batch: b.st.Begin(), t: t, src: c.src}
		res, err := b.p.Layout(t.Context(), p, bytes.NewReader(c.src), int64(len(c.src)), l, rel)
		if err == nil {
			err = p.Commit()
		}
		p.Release()
		if err != nil {
			t.Fatal(err)
		}
		if p.in == 0 || p.out > c.out {
			t.Errorf("%s: %d bytes lie in the file, %d do not", c.name, p.in, p.out)
		}
		before = res
	}
}
