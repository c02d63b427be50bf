package pack

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"ckptfs/cas/anchor"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// smallBlob is the length from which on a blob is an object of its own.
const smallBlob = 64 << 10

// plan is what each region of a file is made of. The objects appear in it as they are cut.
type plan struct {
	format   string
	regions  []region
	fine     bool
	joins    bool      // what goes on in one object is one extent, whatever regions it is of
	skeleton []*object // what is small, or all blobs of a fine layout, joined in file order
}

type region struct {
	formats.Region
	small   bool            // lies in the skeleton: a blob, or data of a crowded layout
	keep    bool            // what its objects are made of is asked for later
	objects []*object       // of data and of large blobs, in order
	tensor  *formats.Tensor // the first that lies in it; nil: none
	odds    chances         // of its relatives' being of use
	master  *region         // of this file, of which it may be the rounding: it is cut after that one
	rel     *relatives      // nil: there are none
	low     *lowRank        // nil: it is not of low rank
	sketch  *anchor.Sketch  // nil: it has no anchors
}

// plan prepares l, and looks at its pads: a parser's mistake must not cost bytes, so a pad that is not zero
// is a blob.
func (j *job) plan(l *formats.Layout) (*plan, error) {
	p := &plan{format: l.Format, regions: make([]region, len(l.Regions)), fine: l.Fine}
	join := j.crowd == together
	p.joins = join && !l.Partial // of a partial layout it is told which data no tensor lies in
	for i, r := range l.Regions {
		if r.Kind == formats.Pad {
			zero, err := isZero(j.r, r.Off, r.Len)
			if err != nil {
				return nil, err
			}
			if !zero {
				r.Kind = formats.Blob
			}
		}
		p.regions[i] = region{Region: r, small: r.Kind == formats.Blob && (l.Fine || r.Len < smallBlob) ||
			r.Kind == formats.Data && join && r.Len < smallBlob}
	}
	for i, k := range firsts(l.Tensors, len(l.Regions)) {
		if k >= 0 {
			p.regions[i].tensor = &l.Tensors[k]
		}
	}
	return p, nil
}

// hint is what the region's tensor tells of its bytes.
func (r *region) hint() codec.Hint {
	if r.tensor == nil {
		return codec.Hint{}
	}
	return hintOf(r.tensor)
}

// relatives are the region's, for the caller to set. Most regions of a file of very many have none, and take
// no memory for them.
func (r *region) relatives() *relatives {
	if r.rel == nil {
		r.rel = &relatives{}
	}
	return r.rel
}

// hintOf is what a tensor tells of its bytes.
func hintOf(t *formats.Tensor) codec.Hint {
	return codec.Hint{DType: string(t.DType), Elem: t.DType.Bits() / 8}
}

// manifest puts the plan's objects, which all have their digests now, into file order.
func (p *plan) manifest(l *formats.Layout, size int64) *manifest.Manifest {
	m := &manifest.Manifest{Format: l.Format, Size: size, Tensors: l.Tensors, Partial: l.Partial}
	m.Regions = slices.Grow(m.Regions, len(p.regions)) // no growing later, which leaves much behind
	if !p.joins {
		m.Extents = slices.Grow(m.Extents, len(p.regions))
	}
	number := map[manifest.Object]int32{} // equal content is one object
	add := func(o *object, off, n int64) {
		k, ok := number[o.named]
		if !ok {
			k = int32(len(m.Objects))
			number[o.named] = k
			m.Objects = append(m.Objects, o.named)
		}
		if e := len(m.Extents) - 1; p.joins && e >= 0 && m.Extents[e].Object == k &&
			m.Extents[e].ObjOff+m.Extents[e].Len == off {
			m.Extents[e].Len += n
			return
		}
		m.Extents = append(m.Extents, manifest.Extent{Len: n, Object: k, ObjOff: off})
	}
	sk, skOff := 0, int64(0) // where the next small blob begins in the skeleton
	for i := range p.regions {
		r := &p.regions[i]
		m.Regions = append(m.Regions, r.Region)
		switch {
		case r.Kind == formats.Pad:
			m.Extents = append(m.Extents, manifest.Extent{Len: r.Len, Object: -1})
		case r.small:
			for left := r.Len; left > 0; {
				o := p.skeleton[sk]
				n := min(left, o.named.Len-skOff)
				add(o, skOff, n)
				left -= n
				if skOff += n; skOff == o.named.Len {
					sk, skOff = sk+1, 0
				}
			}
		default:
			for _, o := range r.objects {
				add(o, 0, o.named.Len)
			}
		}
	}
	return m
}

// joined reads the small blobs, one after the other.
type joined struct {
	r    io.ReaderAt
	rest []region
	done int64 // bytes read of rest[0]
}

func (s *joined) Read(p []byte) (n int, err error) {
	for n < len(p) {
		for len(s.rest) > 0 && (!s.rest[0].small || s.done == s.rest[0].Len) {
			s.rest, s.done = s.rest[1:], 0
		}
		if len(s.rest) == 0 {
			return n, io.EOF
		}
		m := int(min(int64(len(p)-n), s.rest[0].Len-s.done))
		if err := readFull(s.r, p[n:n+m], s.rest[0].Off+s.done); err != nil {
			return n, err
		}
		n += m
		s.done += int64(m)
	}
	return n, nil
}

// section reads one region. Unlike io.SectionReader it does not take the file's end for its own.
type section struct {
	r        io.ReaderAt
	off, end int64
}

func (s *section) Read(p []byte) (int, error) {
	n := int(min(int64(len(p)), s.end-s.off))
	if n == 0 {
		return 0, io.EOF
	}
	if err := readFull(s.r, p[:n], s.off); err != nil {
		return 0, err
	}
	s.off += int64(n)
	return n, nil
}

// readFull fills p from off on.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		return fmt.Errorf("pack: file ends at %d while it is read: %w", off+int64(n), io.ErrUnexpectedEOF)
	}
	return err
}

var zeros [64 << 10]byte

func isZero(r io.ReaderAt, off, n int64) (bool, error) {
	buf := make([]byte, min(n, int64(len(zeros))))
	for n > 0 {
		p := buf[:min(n, int64(len(buf)))]
		if err := readFull(r, p, off); err != nil {
			return false, err
		}
		if !bytes.Equal(p, zeros[:len(p)]) {
			return false, nil
		}
		off, n = off+int64(len(p)), n-int64(len(p))
	}
	return true, nil
}

// object is content on its way to a digest.
type object struct {
	of    *region         // nil: the skeleton
	named manifest.Object // Digest and List once all of it is hashed
	spans [][]manifest.Span
	count int   // spans in all
	open  int64 // spans not hashed yet, and one while the cutter may add more; atomic
}

const (
	spanBlock = 256 // spans stay where they are while more are added, since workers fill them in
	// maxSpans keeps the list of an object, at most 36 bytes a span, within a record.
	maxSpans = 400_000
)

// hint is what is known of the object's bytes.
func (o *object) hint() codec.Hint {
	if o.of == nil {
		return codec.Hint{}
	}
	return o.of.hint()
}

// limits bound an object; what is longer is several.
type limits struct {
	bytes int64
	spans int
}

// full reports whether n more bytes belong to another object.
func (o *object) full(n int, l limits) bool {
	return o.named.Len+int64(n) > l.bytes || o.count >= l.spans
}

// add appends a span of n bytes, whose hash a worker sets.
func (o *object) add(n int) *manifest.Span {
	k := len(o.spans) - 1
	if k < 0 || len(o.spans[k]) == cap(o.spans[k]) {
		o.spans = append(o.spans, make([]manifest.Span, 0, min(spanBlock, max(1, 4*o.count))))
		k++
	}
	o.spans[k] = append(o.spans[k], manifest.Span{Len: uint32(n)})
	o.named.Len += int64(n)
	o.count++
	return &o.spans[k][len(o.spans[k])-1]
}

func (o *object) list() []manifest.Span {
	all := make([]manifest.Span, 0, o.count)
	for _, s := range o.spans {
		all = append(all, s...)
	}
	return all
}
