package pack

import (
	"slices"
	"sync/atomic"

	"ckptfs/cas"
	"ckptfs/cas/chunk"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// earlier is a file that was packed before. What cannot be read of it is as if it had not been there.
type earlier struct {
	store  Store
	m      *manifest.Manifest
	starts []int64 // of the extents, in the file
	lists  *lists  // nil: they are read each time
}

func newEarlier(st Store, m *manifest.Manifest) *earlier {
	e := &earlier{store: st, m: m, starts: make([]int64, len(m.Extents))}
	var off int64
	for i := range m.Extents {
		e.starts[i] = off
		off += m.Extents[i].Len
	}
	return e
}

// grid is the chunks of one of e's regions; nil unless they lie on the grid.
func (e *earlier) grid(r *formats.Region) (spans []manifest.Span) { return e.stepped(r, cas.ChunkSize) }

// stepped is the chunks of one of e's regions; nil unless they are as long as that, but for the last.
func (e *earlier) stepped(r *formats.Region, step int64) (spans []manifest.Span) {
	i, found := slices.BinarySearch(e.starts, r.Off)
	for end := r.Off + r.Len; found && i < len(e.starts) && e.starts[i] < end; i++ {
		x := e.m.Extents[i]
		if x.Object < 0 || x.ObjOff != 0 || e.m.Objects[x.Object].Len != x.Len {
			return nil
		}
		part, ok := e.list(e.m.Objects[x.Object])
		if !ok || len(spans) > 0 && int64(spans[len(spans)-1].Len) != step {
			return nil
		}
		for k, s := range part {
			if int64(s.Len) > step || int64(s.Len) != step && k < len(part)-1 {
				return nil
			}
		}
		spans = append(spans, part...)
	}
	return spans
}

// at is n bytes of the file from off on; nil when they cannot be read.
func (e *earlier) at(off int64, n int) []byte {
	out := make([]byte, 0, n)
	i, found := slices.BinarySearch(e.starts, off)
	if !found {
		i--
	}
	for ; i >= 0 && i < len(e.starts) && len(out) < n; i++ {
		x, skip := &e.m.Extents[i], off+int64(len(out))-e.starts[i]
		m := min(x.Len-skip, int64(n-len(out)))
		if x.Object < 0 {
			out = append(out, make([]byte, m)...)
			continue
		}
		spans, ok := e.list(e.m.Objects[x.Object])
		if !ok {
			return nil
		}
		skip += x.ObjOff
		for _, s := range spans {
			if m > 0 && skip < int64(s.Len) {
				p, err := e.store.Get(s.Hash, nil)
				if err != nil || len(p) != int(s.Len) {
					return nil
				}
				part := p[skip:][:min(m, int64(len(p))-skip)]
				out, m, skip = append(out, part...), m-int64(len(part)), 0
				continue
			}
			skip -= int64(s.Len)
		}
	}
	if len(out) != n {
		return nil
	}
	return out
}

func (e *earlier) list(o manifest.Object) ([]manifest.Span, bool) {
	if !o.List {
		return []manifest.Span{{Hash: o.Digest, Len: uint32(o.Len)}}, true
	}
	if spans, ok := e.lists.get(o.Digest); ok {
		return spans, true
	}
	p, err := e.store.Get(o.Digest, nil)
	if err != nil {
		return nil, false
	}
	spans, err := manifest.DecodeList(p)
	if err != nil {
		return nil, false
	}
	e.lists.add(o.Digest, spans)
	return spans, true
}

// skeleton is the chunks of e's blobs, in order: the skeleton, with short data where it is in it, and large
// ones, which do no harm; nil when they cannot be read.
func (e *earlier) skeleton() *trail {
	if e == nil {
		return nil
	}
	t := &trail{at: map[cas.Hash]int{}, hopes: minHopes}
	seen := map[int32]bool{}
	for i := range e.m.Regions {
		r := &e.m.Regions[i]
		if r.Kind != formats.Blob && !e.joins(r) {
			continue
		}
		for k, found := slices.BinarySearch(e.starts, r.Off); found && k < len(e.starts) &&
			e.starts[k] < r.Off+r.Len; k++ {
			o := e.m.Extents[k].Object
			if o < 0 || seen[o] {
				continue
			}
			seen[o] = true
			spans, ok := e.list(e.m.Objects[o])
			if !ok || len(t.chunks)+len(spans) > maxTrail {
				return nil
			}
			if e.m.Objects[o].List {
				t.lists = append(t.lists, stretch{len(t.chunks), len(spans), e.m.Objects[o].Digest})
			}
			for _, s := range spans {
				t.at[s.Hash] = len(t.chunks)
				t.chunks = append(t.chunks, s)
			}
		}
	}
	return t
}

// joins reports whether short data lies in an object with what is beside it.
func (e *earlier) joins(r *formats.Region) bool {
	if r.Kind != formats.Data || r.Len >= smallBlob {
		return false
	}
	k, found := slices.BinarySearch(e.starts, r.Off)
	if !found {
		return false
	}
	x := e.m.Extents[k]
	return x.Object >= 0 && (x.ObjOff > 0 || e.m.Objects[x.Object].Len != r.Len)
}

// maxTrail bounds the chunks of a trail.
const maxTrail = 1 << 16

// maxPatches bounds the chunks of a skeleton that are put against others: text takes about a millisecond
// each.
const maxPatches = 512

// trail walks along the chunks that a document had before.
type trail struct {
	chunks []manifest.Span
	at     map[cas.Hash]int
	lists  []stretch // in order
	pos    int       // of the chunk that should be next
	given  int

	hopes  int // how many chunks are looked for at once
	raws   [][]byte
	hashes []cas.Hash
}

// stretch is some chunks of a trail, n from first on, that are those of a list.
type stretch struct {
	first, n int
	digest   cas.Hash
}

// list names o, the n chunks from first on, if they were the chunks of a list before.
func (t *trail) list(first, n int, o *manifest.Object) bool {
	i, found := slices.BinarySearchFunc(t.lists, first, func(s stretch, first int) int {
		return s.first - first
	})
	if !found || t.lists[i].n != n {
		return false
	}
	o.Digest, o.List = t.lists[i].digest, true
	return true
}

// maxHopes bounds hopes. At first, and after a chunk that was none of those hoped for, it is small.
const (
	minHopes = 4
	maxHopes = 64
)

// follow returns the chunks that p, which lies ahead of c, begins with: those that come next on the trail, as
// far as they are there and end where c would end them.
func (t *trail) follow(c *chunk.CDC, p []byte) []manifest.Span {
	if t == nil || t.hopes == 0 {
		return nil
	}
	t.raws = t.raws[:0]
	for rest := p; len(t.raws) < t.hopes && t.pos+len(t.raws) < len(t.chunks); {
		n := int(t.chunks[t.pos+len(t.raws)].Len)
		if !c.Ends(rest, n) {
			break
		}
		t.raws = append(t.raws, rest[:n])
		rest = rest[n:]
	}
	if len(t.raws) == 0 {
		t.hopes = 0
		return nil
	}
	t.hashes = slices.Grow(t.hashes[:0], len(t.raws))[:len(t.raws)]
	cas.SumAll(t.hashes, t.raws)
	known := t.chunks[t.pos:]
	for i, h := range t.hashes {
		if h != known[i].Hash {
			t.hopes = 0
			t.pos += i
			return known[:i]
		}
	}
	t.hopes = min(2*t.hopes, maxHopes)
	t.pos += len(t.hashes)
	return known[:len(t.hashes)]
}

// next is the chunk that stood where p, whose hash is h, stands now: the one behind what came before p.
func (t *trail) next(h cas.Hash) (was cas.Hash) {
	if len(t.chunks) == 0 {
		return was
	}
	if i, ok := t.at[h]; ok {
		t.pos, t.hopes = i+1, minHopes
		return was
	}
	if t.given == maxPatches {
		return was
	}
	was = t.chunks[min(t.pos, len(t.chunks)-1)].Hash
	t.pos++
	t.given++
	return was
}

// odds tell of a region whether deltas have paid in it so far.
type odds struct{ tried, paid, asked atomic.Int32 }

// good reports whether to try: always at first, and then as long as every fourth pays; else now and then.
func (o *odds) good() bool {
	n, tried := o.asked.Add(1), o.tried.Load()
	return tried < 4 || 4*o.paid.Load() >= tried || n%32 == 0
}

func (o *odds) tell(paid bool) {
	if paid {
		o.paid.Add(1)
	}
	o.tried.Add(1)
}
