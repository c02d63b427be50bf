package assemble

import (
	"testing"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// zipped is a file of n tensors with 100 bytes before each, and where those begin.
func zipped(t testing.TB, s *shelf, n int) (h cas.Hash, heads []int64) {
	const size, head = 3<<20 + 5000, 100
	m := &manifest.Manifest{Format: "test"}
	for i := range n {
		heads = append(heads, m.Size)
		m.Objects = append(m.Objects, s.object(random(head, byte(i)), head),
			s.object(random(size, byte(i)), cas.ChunkSize))
		m.Extents = append(m.Extents, manifest.Extent{Len: head, Object: int32(2 * i)},
			manifest.Extent{Len: size, Object: int32(2*i + 1)})
		m.Regions = append(m.Regions, formats.Region{Off: m.Size, Len: head},
			formats.Region{Off: m.Size + head, Len: size, Kind: formats.Data})
		m.Size += head + size
	}
	return s.manifest(t, m), heads
}

// Who looks at what stands before tensors, one after the other, finds what comes next decoded, and no more
// than that.
func TestSweep(t *testing.T) {
	s := newShelf()
	h, heads := zipped(t, s, 24)
	r := New(s, Options{})
	f := file(t, r, h)
	p := make([]byte, page)
	look := func(i int) (misses int64) {
		before := r.Stats().Misses
		if _, err := f.ReadAt(p, heads[i]&^(page-1)); err != nil {
			t.Fatal(err)
		}
		r.settle()
		return r.Stats().Misses - before
	}
	for i := range heads {
		if n := look(i); i >= sweepRow && n > 0 {
			t.Errorf("%d chunks missing at tensor %d", n, i)
		}
		// Of each tensor its begin, its end, and what stands before it.
		if most := int64(3 * (i + 1 + sweepAhead)); r.Stats().Fetched > most {
			t.Fatalf("%d chunks fetched after %d tensors", r.Stats().Fetched, i+1)
		}
	}
}

// Who looks here and there, or reads on, is none of those.
func TestNoSweep(t *testing.T) {
	s := newShelf()
	h, heads := zipped(t, s, 24)
	p := make([]byte, 128<<10)
	for name, reads := range map[string]func(read func(i int, n int)){
		"another order": func(read func(i, n int)) {
			for i := range heads {
				read(i*7%24, page)
			}
		},
		"more than a look": func(read func(i, n int)) {
			for i := range heads {
				read(i, len(p))
			}
		},
	} {
		r := New(s, Options{})
		f := file(t, r, h)
		reads(func(i, n int) {
			if _, err := f.ReadAt(p[:n], heads[i]&^(page-1)); err != nil {
				t.Fatal(err)
			}
			r.settle()
		})
		if f.sweep.ahead > 23 || f.sweep.row >= sweepRow {
			t.Errorf("%s: %d in a row", name, f.sweep.row)
		}
		if n := r.Stats().Fetched; n > 3*24 {
			t.Errorf("%s: %d chunks fetched", name, n)
		}
	}
}
