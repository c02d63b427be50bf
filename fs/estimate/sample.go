package estimate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"path"
	"sort"
	"strings"

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

	regions []formats.Region
	of      []int32 // for each tensor the one that it lies beside, or itself
}

// sampleOf is what the shell has of a file.
func (p *pass) sampleOf(f *file, raw io.ReaderAt, l *formats.Layout) *sampled {
	d := &dealer{pass: p, f: f, name: nameOf(f), regions: l.Regions,
		s: &sampled{r: raw, layout: &formats.Layout{Format: l.Format, Partial: l.Partial, Fine: l.Fine}}}
	f.pads = 0
	in := make([][]int32, len(l.Regions))
	for i := range l.Tensors {
		if r := l.Tensors[i].Region; r >= 0 {
			in[r] = append(in[r], int32(i))
		}
	}
	d.beside(l.Tensors)
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

// beside finds which tensors lie beside another: their names go on from its name, as those of scales do.
func (d *dealer) beside(all []formats.Tensor) {
	byName := make(map[string]int32, len(all))
	for i := range all {
		byName[all[i].Name] = int32(i)
	}
	d.of = make([]int32, len(all))
	for i := range all {
		d.of[i] = int32(i)
		name := all[i].Name
		for end := len(name); end > 0; {
			if end = strings.LastIndexAny(name[:end], "._"); end < 0 {
				break
			}
			if of, ok := byName[name[:end]]; ok {
				d.of[i] = of
				break
			}
		}
	}
}

// kin is the same for a tensor and for what may be computed of it, or it of that, in whatever format and by
// whatever names: the numbers in its name and, where tensors have none or are cut, how many elements it has. So
// what a layer has that is not cut stays together.
func kin(t *formats.Tensor, cut bool) uint64 {
	var key []byte
	numbers := pack.Numbers(t.Name)
	for _, n := range numbers {
		key = append(append(key, 0), n...)
	}
	if cut || len(numbers) == 0 {
		key = binary.BigEndian.AppendUint64(append(key, 1), uint64(t.NumElements()))
	}
	return hashOf(string(key))
}

// tensors deals a region with tensors: in slices if it is one long tensor, or lies beside one, else as it is.
func (d *dealer) tensors(r *formats.Region, all []formats.Tensor, in []int32) {
	t, of := &all[in[0]], &all[d.of[in[0]]]
	if rows := d.sliceRows(of); rows > 0 && (t == of || len(in) == 1) && d.slices(r, t, of, rows) {
		return
	}
	if !d.mine(kin(of, false)) {
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

// slices deals t in slices of so many rows of a long tensor: t itself, or one that t lies beside. What lies
// beside a tensor goes with its slices: as it is where it has no rows for them and is short. ok is false where
// it is not.
func (d *dealer) slices(r *formats.Region, t, of *formats.Tensor, rows int64) (ok bool) {
	key, all, ratio := kin(of, true), of.Shape[0], int64(0)
	if fills(t, r) && t.Shape[0] > 0 && r.Len%t.Shape[0] == 0 {
		if ratio = (all + t.Shape[0] - 1) / t.Shape[0]; rows%ratio != 0 || (all+ratio-1)/ratio != t.Shape[0] {
			ratio = 0
		}
	}
	if ratio == 0 && r.Len >= smallBlob {
		return false
	}
	for k := range (all + rows - 1) / rows {
		if !d.mine(part(key, k)) {
			continue
		}
		cut, off, n := *t, int64(0), r.Len
		cut.Name = sliceName(t.Name, of.Name, k)
		if ratio > 0 {
			each, from := r.Len/t.Shape[0], k*rows/ratio
			have := min(rows/ratio, t.Shape[0]-from)
			off, n = from*each, have*each
			cut.Shape = append([]int64{have}, t.Shape[1:]...)
		}
		cut.Region = d.s.add(r.Off+off, n, r.Kind)
		d.s.layout.Tensors = append(d.s.layout.Tensors, cut)
		d.count(n, r.Len)
	}
	return true
}

// sliceName is the name of the k-th slice of a tensor, or of what lies beside that tensor.
func sliceName(name, of string, k int64) string {
	return fmt.Sprintf("%s[%d]%s", of, k, name[len(of):])
}

// count notes how much of a tensor is in the sample: what all its chunks have in common is of the whole.
func (d *dealer) count(n, of int64) {
	if of >= ranked {
		d.f.rank[0] += n
		d.f.rank[1] += of
	}
}

// fills reports whether a tensor has rows and is all of a region.
func fills(t *formats.Tensor, r *formats.Region) bool {
	return t.Stride == nil && t.Offset == 0 && len(t.Shape) > 0 && t.NumBytes() == r.Len
}

// sliceRows is how many rows of a tensor that fills a region are a slice; 0: it is not cut.
func (d *dealer) sliceRows(t *formats.Tensor) int64 {
	slice := cmp.Or(d.o.slice, sliceElements)
	if t.Region < 0 || !fills(t, &d.regions[t.Region]) || t.Shape[0] == 0 {
		return 0
	}
	n := t.NumElements()
	if n < 2*slice || t.NumBytes()%t.Shape[0] != 0 {
		return 0
	}
	return max(1, slice/(n/t.Shape[0]))
}
