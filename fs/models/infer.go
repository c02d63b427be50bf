package models

import (
	"bytes"
	"io"
	"path"
	"slices"
	"strings"

	"ckptfs/cas"
	"ckptfs/fs/steps"
	"ckptfs/index/ledger"
	"ckptfs/index/lineage"
	"ckptfs/index/manifest"
)

// A model whose parent is not declared comes from another where at least half of the bytes of its tensors are
// that one's: frozen weights, or a copy with some added. What models have in common by chance does not count:
// tensors of less than minTelling bytes, those of one or two different elements (norms and biases as they
// begin, counters, masks), and files of the same step, which are saved together.
const (
	minTelling = 1 << 10
	maxVaried  = 1 << 20 // bytes of a tensor that are looked at
	maxLikely  = 16      // models that are looked at, those with most marks in common first
)

// likely guesses the parent of a new model from what it holds; 0: none is likely.
func (s *reconciler) likely(p *stepPlace, m *manifest.Manifest, tensors []lineage.Tensor,
	marks []uint64) uint64 {
	var c *contents
	left := maxLikely
	for _, e := range s.book.Like(marks) {
		if strings.HasPrefix(e.Path, path.Join(steps.Dir, p.run, p.step.Name)+"/") || s.comesFrom(e, p) {
			continue
		}
		theirs := s.modelManifest(e.Manifest)
		if theirs == nil {
			continue
		}
		if c == nil {
			r, _, done, err := s.open(p.path, p.ino)
			if err != nil {
				return 0
			}
			defer done()
			c = &contents{r: r, m: m, tensors: tensors, telling: map[cas.Hash]bool{}}
		}
		if c.mostly(theirs) {
			return e.Seq
		}
		if left--; left == 0 {
			break
		}
	}
	return 0
}

// comesFrom reports whether the step of e says that it comes from where p is.
func (s *reconciler) comesFrom(e *ledger.Entry, p *stepPlace) bool {
	run, st, _ := s.stepOf(e.Path)
	if st == nil {
		return false
	}
	from, d := st.From(run), st.Declared()
	return slices.ContainsFunc(append([]string{d.Parent}, d.MergedFrom...), func(said string) bool {
		to, err := ledger.Resolve(said, from, s.o.Mountpoint())
		return said != "" && err == nil && (to == p.path || strings.HasPrefix(p.path, to+"/"))
	})
}

// contents is a new model, whose parent is looked for.
type contents struct {
	r       io.ReaderAt
	m       *manifest.Manifest
	tensors []lineage.Tensor
	telling map[cas.Hash]bool // tensors that were looked at, by their digests
}

// mostly reports whether at least half of the model's bytes are another's.
func (c *contents) mostly(other *manifest.Manifest) bool {
	theirs, _, _ := modelTensors(other)
	has := make(map[cas.Hash]bool, len(theirs))
	for i := range theirs {
		has[theirs[i].Digest] = true
	}
	var all, common int64
	for i := range c.tensors {
		n := c.m.Tensors[i].NumBytes()
		shared := has[c.tensors[i].Digest]
		if n < minTelling || shared && !c.tells(i) {
			continue
		}
		all += n
		if shared {
			common += n
		}
	}
	return common > 0 && common >= all-common
}

// tells reports whether tensor i has more than two different elements. One that cannot be read has not.
func (c *contents) tells(i int) bool {
	digest := c.tensors[i].Digest
	told, ok := c.telling[digest]
	if !ok {
		t := &c.m.Tensors[i]
		if t.Region >= 0 {
			region := c.m.Regions[t.Region]
			told = varied(io.NewSectionReader(c.r, region.Off, min(region.Len, maxVaried)),
				max(t.DType.Bits()/8, 1))
		}
		c.telling[digest] = told
	}
	return told
}

// varied reports whether what r reads has more than two different elements of so many bytes. Of nearly all
// that have it reads but the beginning.
func varied(r io.Reader, width int) bool {
	buf := make([]byte, 4096*width)
	var seen [][]byte
	for {
		n, err := io.ReadFull(r, buf)
		for p := buf[:n-n%width]; len(p) > 0; p = p[width:] {
			x := p[:width]
			switch {
			case len(seen) > 0 && bytes.Equal(x, seen[0]), len(seen) > 1 && bytes.Equal(x, seen[1]):
			case len(seen) == 2:
				return true
			default:
				seen = append(seen, bytes.Clone(x))
			}
		}
		if err != nil {
			return false
		}
	}
}
