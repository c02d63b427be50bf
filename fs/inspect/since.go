package inspect

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
	"ckptfs/index/runs"
)

// The names of what a Patch has of a tensor, behind the tensor's.
const (
	patchPositions = ".idx"
	patchValues    = ".val"
)

// patchPiece is how many bytes of a tensor a worker compares at a time; a multiple of every element's width.
const patchPiece = 1 << 20

// Since makes the patch that turns the tensors at a into those at b: the paths of two files, or of two
// folders with a model each (reach.model). The error is view.ErrNoView when safetensors has no type for a
// tensor that changed, and ESTALE when a file was written meanwhile.
//
// What both have in equal chunks is not read. Of the rest both sides are read once, so it takes time in
// proportion to the chunks that changed, and memory for one piece of a tensor a processor, besides 250 bytes
// for a tensor that changed.
func (ins *Inspector) Since(ctx context.Context, a, b string) (*Patch, error) {
	m := &patcher{ins: ins, ctx: ctx, p: newPatch(ins.spill)}
	r := newReach(ins)
	m.p.reach = r
	if err := m.make(r, a, b); err != nil {
		m.p.Close()
		return nil, err
	}
	return m.p, nil
}

// patcher makes a Patch.
type patcher struct {
	ins     *Inspector
	ctx     context.Context
	p       *Patch
	entries []patched
	counts  patchCounts
	names   map[string]bool // of entries
}

// patchCounts are what the header of a patch tells.
type patchCounts struct {
	tensors, changed, elements int64 // changed tensors; changed elements, and how many all tensors have
	whole                      int64 // tensors that are there whole
	removed                    []string
}

// patched is an entry of a patch, and where its bytes were written.
type patched struct {
	safetensors.Entry
	at patchPlace
}

func (m *patcher) make(r *reach, a, b string) error {
	left, err := r.model(m.ctx, a)
	if err != nil {
		return &fs.PathError{Op: "since", Path: a, Err: err}
	}
	right, err := r.model(m.ctx, b)
	if err != nil {
		return &fs.PathError{Op: "since", Path: b, Err: err}
	}
	if err := m.p.remember(r); err != nil {
		return err
	}
	for _, c := range []*set{left, right} {
		if c.one != nil {
			defer c.one.keep()()
		}
	}
	of, at := firsts(left), firsts(right)
	m.names = make(map[string]bool, len(at))
	for j := range right.len() {
		t := right.at(j)
		if at[t.Name] != j {
			continue
		}
		var s *array
		if i, ok := of[t.Name]; ok {
			s = left.at(i)
		}
		if err := m.tensor(s, t); err != nil {
			return &fs.PathError{Op: "since", Path: b, Err: fmt.Errorf("tensor %s: %w", t.Name, err)}
		}
	}
	for i := range left.len() {
		if name := left.nameOf(i); !mapHas(at, name) {
			m.counts.removed = append(m.counts.removed, name)
		}
	}
	if err := m.p.seal(m.entries, m.counts.metadata(a, b)); err != nil {
		return err
	}
	if !m.p.Current() {
		return errChanged
	}
	return nil
}

// metadata is what the header of a patch says besides tensors.
func (c *patchCounts) metadata(a, b string) map[string]string {
	sparsity := 1.0
	if c.elements > 0 {
		sparsity -= float64(c.changed) / float64(c.elements)
	}
	sparse := "True"
	if c.whole > 0 && c.whole == c.tensors {
		sparse = "False"
	}
	all := map[string]string{
		"format": "sparse_weight_patch", "version": "1", "encoding": "raw", "sparse": sparse,
		"model_version":          "0",
		"num_changed_params":     strconv.FormatInt(c.tensors, 10),
		"total_changed_elements": strconv.FormatInt(c.changed, 10),
		"total_elements":         strconv.FormatInt(c.elements, 10),
		"sparsity":               strconv.FormatFloat(sparsity, 'f', -1, 64),
		"base":                   a, "step": b,
	}
	if _, numbers := runs.Numbers(path.Base(b)); len(numbers) > 0 {
		all["model_version"] = cmp.Or(numbers[len(numbers)-1], "0")
	}
	if len(c.removed) > 0 {
		all["removed"] = removedText(c.removed)
	}
	return all
}

// tensor adds what changed of a tensor. s is the one before it, or nil.
func (m *patcher) tensor(s, t *array) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	n := max(t.NumElements(), 0)
	m.counts.elements += n
	same := s != nil && s.DType == t.DType && slices.Equal(s.Shape, t.Shape)
	if same && (t.NumBytes() == 0 || s.sameStorage(t)) {
		return nil
	}
	width := 0
	if _, block := t.DType.Block(); block == 0 && t.DType.Bits()%8 == 0 {
		width = t.DType.Bits() / 8
	}
	if !same || width == 0 || width > maxPatched || n > math.MaxInt32 {
		if same {
			equal, err := m.equal(s, t)
			if err != nil || equal {
				return err
			}
		}
		return m.whole(t)
	}
	positions, values := m.p.mark(patchOfPositions), m.p.mark(patchOfValues)
	changed, err := m.compare(s, t, width)
	if err != nil || changed == 0 {
		return err
	}
	if changed < 0 { // so many that the tensor itself is shorter
		m.p.reset(positions)
		m.p.reset(values)
		return m.whole(t)
	}
	m.counts.tensors++
	m.counts.changed += changed
	shape := []int64{changed}
	return m.add(
		entryOf(t.Name+patchPositions, formats.I32, shape, positions),
		entryOf(t.Name+patchValues, t.DType, shape, values))
}

func entryOf(name string, d formats.DType, shape []int64, at patchPlace) patched {
	return patched{safetensors.Entry{Name: name, DType: d, Shape: shape}, at}
}

func (m *patcher) add(all ...patched) error {
	for _, e := range all {
		if m.names[e.Name] {
			return noPatch("two tensors would be called %q", e.Name)
		}
		if !safetensors.HasType(e.DType) {
			return noPatch("safetensors has no type %s", e.DType)
		}
		m.names[e.Name] = true
		m.entries = append(m.entries, e)
	}
	return nil
}

// whole adds a tensor as it is.
func (m *patcher) whole(t *array) error {
	m.counts.tensors++
	m.counts.whole++
	m.counts.changed += max(t.NumElements(), 0)
	at := m.p.mark(patchOfValues)
	if err := m.add(entryOf(t.Name, t.DType, t.Shape, at)); err != nil {
		return err
	}
	size := t.NumBytes()
	if size <= 0 {
		return nil
	}
	r, err := m.ins.openArray(t)
	if err != nil {
		return err
	}
	defer r.done()
	buf := make([]byte, min(patchPiece, size))
	for off := int64(0); off < size; off += patchPiece {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		buf := buf[:min(patchPiece, size-off)]
		if err := r.read(buf, off); err != nil {
			return err
		}
		if err := m.p.write(patchOfValues, buf); err != nil {
			return err
		}
	}
	return nil
}

// equal reports whether two tensors of one type and shape have the same bytes.
func (m *patcher) equal(s, t *array) (bool, error) {
	d := differ{ins: m.ins, out: &control.Diff{}}
	_, same, err := d.read(m.ctx, &set{}, s, &set{}, t)
	return same, err
}

// comparer compares pieces of two arrays, for one goroutine.
type comparer struct {
	x, y   *arrayReader
	p, q   []byte
	idx    []int32
	values []byte
}

// compare writes the positions and values of the elements that changed, and returns how many they are; -1
// when they would take more than the tensor.
func (m *patcher) compare(s, t *array, width int) (changed int64, err error) {
	size := t.NumBytes()
	work := m.ins.pieces(s, t, size)
	all := make([]comparer, min(len(work), cas.Processors))
	for i := range all {
		c := &all[i]
		if c.x, err = m.ins.openArray(s); err != nil {
			return 0, err
		}
		defer c.x.done()
		if c.y, err = m.ins.openArray(t); err != nil {
			return 0, err
		}
		defer c.y.done()
	}
	for len(work) > 0 {
		now := all[:min(len(all), len(work))]
		g, ctx := errgroup.WithContext(m.ctx)
		for i := range now {
			g.Go(func() error {
				if err := ctx.Err(); err != nil {
					return err
				}
				return now[i].piece(work[i], width)
			})
		}
		if err := g.Wait(); err != nil {
			return 0, err
		}
		for i := range now {
			c := &now[i]
			changed += int64(len(c.idx))
			if changed*int64(4+width) >= size {
				return -1, nil
			}
			if err := m.p.write(patchOfPositions, bytesOf(c.idx)); err != nil {
				return 0, err
			}
			if err := m.p.write(patchOfValues, c.values); err != nil {
				return 0, err
			}
		}
		work = work[len(now):]
	}
	return changed, nil
}

// piece compares the bytes of a stretch.
func (c *comparer) piece(at stretch, width int) error {
	if c.p == nil {
		c.p, c.q = make([]byte, patchPiece), make([]byte, patchPiece)
	}
	p, q := c.p[:at.n], c.q[:at.n]
	if err := c.x.read(p, at.off); err != nil {
		return err
	}
	if err := c.y.read(q, at.off); err != nil {
		return err
	}
	c.idx, c.values = appendChanged(c.idx[:0], c.values[:0], p, q, width, int32(at.off/int64(width)))
	return nil
}
