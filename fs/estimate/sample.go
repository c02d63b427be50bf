package estimate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"path"
	"sort"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/fs/pack"
	"ckptfs/index/runs"
)

const (
	// sliceElements is how many elements of a long tensor are a slice: 32 chunks of half precision, as many as
	// factors of low rank are made of.
	sliceElements = 4 << 20
	// windowBytes is how much of a large blob is dealt at once.
	windowBytes = 4 << 20
	// smallBlob is the length below which blobs are joined when they are packed, as in fs/pack.
	smallBlob = 64 << 10
	// ranked is the length of a tensor, in bytes, from which on it may be of low rank, as in fs/pack.
	ranked = 64 << 10
)

// sampled is the part of a file that a shell has, as a file.
type sampled struct {
	r      io.ReaderAt
	layout *formats.Layout
	starts []int64 // of the regions, in it
	places []int64 // and in the file
	size   int64
}

// place is where the n bytes at off lie in the file; false: not in one piece.
func (s *sampled) place(off int64, n int) (int64, bool) {
	i := sort.Search(len(s.starts), func(i int) bool { return s.starts[i] > off }) - 1
	by := s.places[i] - s.starts[i]
	for ; i < len(s.starts) && s.starts[i] < off+int64(n); i++ {
		if s.places[i]-s.starts[i] != by {
			return 0, false
		}
	}
	return off + by, true
}

// ReadAt reads the file where the regions lie.
func (s *sampled) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) && err == nil {
		at := off + int64(n)
		if at >= s.size {
			return n, io.EOF
		}
		i := sort.Search(len(s.starts), func(i int) bool { return s.starts[i] > at }) - 1
		end := s.size
		if i+1 < len(s.starts) {
			end = s.starts[i+1]
		}
		m := min(len(p)-n, int(end-at))
		var k int
		k, err = s.r.ReadAt(p[n:n+m], s.places[i]+at-s.starts[i])
		if n += k; k == m {
			err = nil
		}
	}
	return n, err
}

// add appends bytes of the file as a region, and returns its number.
func (s *sampled) add(off, n int64, kind formats.Kind) int {
	s.starts, s.places = append(s.starts, s.size), append(s.places, off)
	s.layout.Regions = append(s.layout.Regions, formats.Region{Off: s.size, Len: n, Kind: kind})
	s.size += n
	return len(s.starts) - 1
}

// dealer deals what a file has to shells.
type dealer struct {
	*pass
	f    *file
	name uint64 // of what has no name of its own
	s    *sampled
}

// sampleOf is what the shell has of a file.
func (p *pass) sampleOf(f *file, raw io.ReaderAt, l *formats.Layout) *sampled {
	d := &dealer{pass: p, f: f, name: nameOf(f),
		s: &sampled{r: raw, layout: &formats.Layout{Format: l.Format, Partial: l.Partial, Fine: l.Fine}}}
	f.pads = 0
	in := make([][]int32, len(l.Regions))
	for i := range l.Tensors {
		if r := l.Tensors[i].Region; r >= 0 {
			in[r] = append(in[r], int32(i))
		}
	}
	for i := range l.Regions {
		switch r := &l.Regions[i]; {
		case r.Kind == formats.Pad:
			f.pads += r.Len
		case r.Kind == formats.Blob && (l.Fine || r.Len < smallBlob):
			if p.shell == 0 {
				p.heads += r.Len
			}
			if d.mine(d.name) {
				d.s.add(r.Off, r.Len, r.Kind)
			}
		case len(in[i]) == 0:
			d.windows(r)
		default:
			d.tensors(r, l.Tensors, in[i])
		}
	}
	return d.s
}

// nameOf is what a file is dealt by, as far as it has no tensors. A small file is dealt as a whole.
func nameOf(f *file) uint64 {
	pattern, _ := runs.Numbers(path.Base(f.path))
	return hashOf(pattern)
}

func hashOf(s string) uint64 {
	x := cas.SumXXH3([]byte(s))
	return binary.BigEndian.Uint64(x[:])
}

// mine reports whether the shell has what is called so.
func (p *pass) mine(key uint64) bool { return key%uint64(p.shells) == uint64(p.shell) }

// part is the name of the k-th part of something.
func part(key uint64, k int64) uint64 {
	if k == 0 {
		return key
	}
	return hashOf(string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, key), uint64(k))))
}

// windows deals a region without tensors.
func (d *dealer) windows(r *formats.Region) {
	for k := range (r.Len + windowBytes - 1) / windowBytes {
		if d.mine(part(d.name, k)) {
			d.s.add(r.Off+k*windowBytes, min(windowBytes, r.Len-k*windowBytes), r.Kind)
		}
	}
}

// tensors deals a region with tensors: in slices if it is one long tensor, else as it is.
func (d *dealer) tensors(r *formats.Region, all []formats.Tensor, in []int32) {
	t := &all[in[0]]
	key := pack.Kin(t)
	if rows := d.sliceRows(t, r); rows > 0 {
		each := r.Len / t.Shape[0]
		for k := range (t.Shape[0] + rows - 1) / rows {
			if !d.mine(part(key, k)) {
				continue
			}
			n := min(rows, t.Shape[0]-k*rows)
			cut := *t
			cut.Shape = append([]int64{n}, t.Shape[1:]...)
			cut.Name = fmt.Sprintf("%s[%d]", t.Name, k)
			cut.Region = d.s.add(r.Off+k*rows*each, n*each, r.Kind)
			d.s.layout.Tensors = append(d.s.layout.Tensors, cut)
			d.count(n*each, r.Len)
		}
		return
	}
	if !d.mine(key) {
		return
	}
	region := d.s.add(r.Off, r.Len, r.Kind)
	for _, i := range in {
		whole := all[i]
		whole.Region = region
		d.s.layout.Tensors = append(d.s.layout.Tensors, whole)
	}
	d.count(r.Len, r.Len)
}

// count notes how much of a tensor is in the sample: what all its chunks have in common is of the whole.
func (d *dealer) count(n, of int64) {
	if of >= ranked {
		d.f.rank[0] += n
		d.f.rank[1] += of
	}
}

// sliceRows is how many rows of a tensor that fills a region are a slice; 0: it is not cut.
func (d *dealer) sliceRows(t *formats.Tensor, r *formats.Region) int64 {
	slice := cmp.Or(d.o.slice, sliceElements)
	if t.Stride != nil || t.Offset != 0 || len(t.Shape) == 0 || t.NumBytes() != r.Len {
		return 0
	}
	n := t.NumElements()
	if n < 2*slice || r.Len%t.Shape[0] != 0 {
		return 0
	}
	return max(1, slice/(n/t.Shape[0]))
}
