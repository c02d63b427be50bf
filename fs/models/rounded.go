package models

import (
	"cmp"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/fs/steps"
	"ckptfs/index/ledger"
	"ckptfs/index/manifest"
)

// A copy in half precision comes from the model whose numbers are its own before they were rounded, however
// it is stored: it may be smaller as the difference from another copy, or have been packed without a base. Of
// each tensor the beginning is compared, the largest tensors first.
const (
	roundedLook  = 4 << 10 // bytes of a tensor that are compared
	mostRounded  = 32      // tensors of a model that are compared
	mostMatching = 256     // models of as many tensors whose manifests are read, the latest first
)

// roundedFrom guesses the model that a new one is the rounding of; 0: none is likely.
func (s *reconciler) roundedFrom(p *stepPlace, m *manifest.Manifest) uint64 {
	c := newCast(m)
	if c == nil {
		return 0
	}
	r, _, done, err := s.open(p.path, p.ino)
	if err != nil {
		return 0
	}
	defer done()
	c.r = r
	live := slices.DeleteFunc(slices.Collect(maps.Values(s.book.Live())), func(e *ledger.Entry) bool {
		return e.Tensors != len(m.Tensors) || e.Size <= m.Size || e.Manifest.IsZero() ||
			strings.HasPrefix(e.Path, path.Join(steps.Dir, p.run, p.step.Name)+"/") || s.comesFrom(e, p)
	})
	slices.SortFunc(live, func(a, b *ledger.Entry) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(b.Seq, a.Seq))
	})
	var best uint64
	var most int64
	left := maxLikely
	for _, e := range live[:min(len(live), mostMatching)] {
		theirs := s.modelManifest(e.Manifest)
		if theirs == nil || !c.matches(theirs) {
			continue
		}
		if n := s.roundedTo(c, e); n > most {
			best, most = e.Seq, n
		}
		if left--; left == 0 || most == c.looked {
			break
		}
	}
	if 2*most < c.looked {
		return 0
	}
	return best
}

// roundedTo is how many bytes of c are, as far as is looked, roundings of the model that matched.
func (s *reconciler) roundedTo(c *cast, e *ledger.Entry) int64 {
	if rec, err := s.o.Files.Record(e.Path, e.Ino); err != nil || rec.Remote || rec.Manifest != e.Manifest {
		return 0
	}
	r, _, done, err := s.open(e.Path, e.Ino)
	if err != nil {
		return 0
	}
	defer done()
	return c.common(r)
}

// cast is a new model that may be the rounding of another.
type cast struct {
	r       io.ReaderAt
	tensors []castTensor // the largest first
	looked  int64        // bytes of these
}

type castTensor struct {
	*formats.Tensor
	off    int64 // in the file
	theirs int64 // of what it may be the rounding of, in its file; -1: it is of none
}

// newCast is nil where less than half of a model has been rounded.
func newCast(m *manifest.Manifest) *cast {
	c := &cast{}
	var all, half int64
	for i := range m.Tensors {
		t := &m.Tensors[i]
		n := t.NumBytes()
		if t.Region < 0 || n < minTelling {
			continue
		}
		all += n
		if t.Contiguous() && codec.MayBeRounded(codec.Hint{DType: string(t.DType)}) {
			half += n
			c.tensors = append(c.tensors, castTensor{Tensor: t, off: m.Regions[t.Region].Off + t.Offset})
		}
	}
	if half == 0 || 2*half < all {
		return nil
	}
	slices.SortStableFunc(c.tensors, func(a, b castTensor) int {
		return cmp.Compare(b.NumBytes(), a.NumBytes())
	})
	c.tensors = c.tensors[:min(len(c.tensors), mostRounded)]
	for i := range c.tensors {
		c.looked += c.tensors[i].NumBytes()
	}
	return c
}

// matches notes where another model has the tensors of c in single precision, and reports whether it has half
// of them.
func (c *cast) matches(m *manifest.Manifest) bool {
	at := make(map[string]int, len(m.Tensors))
	for i := range m.Tensors {
		at[m.Tensors[i].Name] = i
	}
	var has int64
	for i := range c.tensors {
		t := &c.tensors[i]
		t.theirs = -1
		k, ok := at[t.Name]
		if !ok {
			continue
		}
		if o := &m.Tensors[k]; o.DType == formats.F32 && o.Region >= 0 && o.Contiguous() &&
			slices.Equal(o.Shape, t.Shape) {
			t.theirs = m.Regions[o.Region].Off + o.Offset
			has += t.NumBytes()
		}
	}
	return 2*has >= c.looked
}

// common is how many bytes are of tensors that begin as roundings of what r has. It ends once they cannot be
// half any more. What is one or two different numbers is no sign.
func (c *cast) common(r io.ReaderAt) (common int64) {
	var other int64
	raw, base := make([]byte, roundedLook), make([]byte, 2*roundedLook)
	for i := range c.tensors {
		t := &c.tensors[i]
		n := min(t.NumBytes(), roundedLook)
		if t.theirs >= 0 && read(c.r, raw[:n], t.off) && read(r, base[:2*n], t.theirs) &&
			codec.IsRounded(raw[:n], base[:2*n], codec.Hint{DType: string(t.DType)}) && tellsApart(raw[:n]) {
			common += t.NumBytes()
		} else if other += t.NumBytes(); 2*other > c.looked {
			return 0
		}
	}
	return common
}

// tellsApart reports whether numbers of two bytes are more than two different ones.
func tellsApart(raw []byte) bool {
	seen := map[[2]byte]bool{}
	for i := 0; i+1 < len(raw) && len(seen) <= 2; i += 2 {
		seen[[2]byte(raw[i:])] = true
	}
	return len(seen) > 2
}

func read(r io.ReaderAt, p []byte, off int64) bool {
	n, _ := r.ReadAt(p, off)
	return n == len(p)
}
