package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/blueprint"
	"ckptfs/fs/control"
	"ckptfs/index/graph"
	"ckptfs/index/ledger"
	"ckptfs/index/manifest"
	"ckptfs/index/prefix"
)

// qualityMetric is the metric of a step by which matches of equal length are ranked; greater is better.
const qualityMetric = "quality"

// catalogue is the live models by their architectures, as of one moment of the ledger.
type catalogue struct {
	*prefix.Catalogue
	in      map[uint64]string  // models that are in it: Entry.GraphFrom
	quality map[uint64]float64 // theirs
	gen     uint64             // of the ledger
}

// blueprintOf finds the graph of a model. same: it is read from what it was read from before (from).
func (s *settling) blueprintOf(p *stepPlace, m *manifest.Manifest, before string) (g *graph.Graph, from string, same bool) {
	at := path.Join(runsDir, p.run, p.step.name)
	files := make([]blueprint.File, len(p.step.files))
	for i, f := range p.step.files {
		files[i] = blueprint.File{Rel: f.rel, Stamp: fmt.Sprintf("%d:%d:%d", f.ino, f.mtime, f.size)}
		if f.rel == p.rel {
			files[i].Attr = s.v.graphAttr(p.path)
		}
	}
	for _, src := range blueprint.Sources(files, p.rel, m.Format) {
		if before != "" && (src.Key == before || src.Own(p.rel) && ownKey(before, p.rel)) {
			s.taken[path.Join(at, src.Rel)] = true
			return nil, before, true
		}
		g, err := blueprint.Read(&src, func(rel string) (io.ReaderAt, int64, func(), error) { return s.v.openPath(path.Join(at, rel)) }, m.Tensors)
		if err == nil {
			s.taken[path.Join(at, src.Rel)] = true
			return g, src.Key, false
		}
		if src.Sidecar() && errors.Is(err, graph.ErrInvalid) {
			s.refused[path.Join(at, src.Rel)] = err
		}
	}
	return nil, "", false
}

// graphAttr is the attribute of a model that has its graph; nil when there is none.
func (v *Volume) graphAttr(p string) []byte {
	n, err := v.resolve(p)
	if err != nil {
		return nil
	}
	defer v.unref(n, 1)
	value := make([]byte, maxXattr)
	k, err := v.GetXattr(context.Background(), n, blueprint.Xattr, value)
	if err != nil {
		return nil
	}
	return value[:k]
}

// ownKey reports whether a key is that of such a source.
func ownKey(key, rel string) bool {
	kind, rest, ok := strings.Cut(key, " ")
	return !ok && kind == key || strings.HasPrefix(rest, rel+" ")
}

// openPath makes a file readable until done is called.
func (v *Volume) openPath(p string) (io.ReaderAt, int64, func(), error) {
	n, err := v.resolve(p)
	if err != nil {
		return nil, 0, nil, err
	}
	r, size, done, err := v.peruse(n)
	if err != nil {
		v.unref(n, 1)
		return nil, 0, nil, err
	}
	return r, size, func() { done(); v.unref(n, 1) }, nil
}

// keepGraph makes a graph that of an entry, to be recorded with it. A graph that is too large is none.
func (m *models) keepGraph(e *ledger.Entry, g *graph.Graph, from string) {
	e.Graph, e.GraphFrom = nil, from
	if g == nil {
		return
	}
	p, err := g.Encode()
	if err != nil {
		return
	}
	const part = cas.MaxChunk - len(ledger.GraphMagic)
	for len(p) > 0 {
		n := min(len(p), part)
		record := append([]byte(ledger.GraphMagic), p[:n]...)
		h := cas.Sum(record)
		m.parts[h] = record
		e.Graph = append(e.Graph, h)
		p = p[n:]
	}
}

// graphOf is the graph of an entry.
func (m *models) graphOf(v *Volume, e *ledger.Entry) (*graph.Graph, error) {
	var p []byte
	for _, h := range e.Graph {
		record, ok := m.parts[h]
		if !ok {
			var err error
			if record, err = v.store.Get(h, nil); err != nil {
				return nil, err
			}
		}
		p = append(p, strings.TrimPrefix(string(record), ledger.GraphMagic)...)
	}
	return graph.Decode(p)
}

// upToDate brings the catalogue up to the ledger. m.mu is held, and the ledger settled.
func (m *models) upToDate(v *Volume) *catalogue {
	c := m.catalogue
	if c == nil {
		c = &catalogue{Catalogue: prefix.New(), in: map[uint64]string{}, quality: map[uint64]float64{}}
		m.catalogue = c
	} else if c.gen == m.book.Gen && !m.recheck {
		return c
	}
	c.gen, m.recheck = m.book.Gen, false
	decoded := map[cas.Hash]*graph.Graph{} // checkpoints of one architecture mostly have one record
	live := map[uint64]bool{}
	for _, e := range m.book.Live() {
		live[e.Seq] = true
		q := m.qualityOf(e)
		if from, ok := c.in[e.Seq]; ok && from == e.GraphFrom {
			if old := c.quality[e.Seq]; q != old && !(math.IsNaN(q) && math.IsNaN(old)) {
				c.SetQuality(e.Seq, q)
				c.quality[e.Seq] = q
			}
			continue
		} else if ok {
			c.Retire(e.Seq)
			delete(c.in, e.Seq)
		}
		if len(e.Graph) == 0 {
			continue
		}
		g := decoded[e.Graph[0]]
		if g == nil || len(e.Graph) > 1 {
			var err error
			if g, err = m.graphOf(v, e); err != nil {
				v.report(slog.LevelWarn, "the architecture of a model cannot be read: it takes no part in matches", "path", e.Path, "reason", err)
				continue
			}
			decoded[e.Graph[0]] = g
		}
		if c.Add(prefix.Model{Seq: e.Seq, Quality: q}, g) == nil {
			c.in[e.Seq], c.quality[e.Seq] = e.GraphFrom, q
		}
	}
	for seq := range c.in {
		if !live[seq] {
			c.Retire(seq)
			delete(c.in, seq)
			delete(c.quality, seq)
		}
	}
	return c
}

// qualityOf is what a model's step says of its quality; NaN when it says nothing.
func (m *models) qualityOf(e *ledger.Entry) float64 {
	parts := strings.SplitN(e.Path, "/", 4)
	if len(parts) == 4 {
		if st := m.seen[parts[1]+"/"+parts[2]]; st != nil {
			if q, ok := st.metrics[qualityMetric]; ok {
				return q
			}
		}
	}
	return math.NaN()
}

// Match finds the stored model with the longest prefix in common with an architecture.
func (v *Volume) Match(ctx context.Context, o control.MatchOptions) (*control.MatchAnswer, error) {
	var g *graph.Graph
	if o.Like == "" {
		var err error
		if g, err = graph.ParseExplicit(o.Graph, nil); err != nil {
			return nil, fmt.Errorf("match: %w: %w", err, unix.EINVAL)
		}
	}
	like := v.source(o.Like)
	out := &control.MatchAnswer{}
	ask := func(m *models) error {
		self := uint64(0)
		if o.Like != "" {
			e, err := m.oneModel("match", like)
			if err != nil {
				return err
			}
			if len(e.Graph) == 0 {
				return &fs.PathError{Op: "match", Path: o.Like, Err: fmt.Errorf("its architecture is not known: %w", unix.ENODATA)}
			}
			if g, err = m.graphOf(v, e); err != nil {
				return &fs.PathError{Op: "match", Path: o.Like, Err: err}
			}
			self = e.Seq
		}
		*out = control.MatchAnswer{GraphKind: g.Kind.String(), Vertices: len(g.Vertices)}
		c := m.upToDate(v)
		found, ok := c.Find(g, prefix.Query{Exclude: func(seq uint64) bool {
			return seq == self || o.ExcludeRun != "" && strings.HasPrefix(m.book.Get(seq).Path, path.Join(runsDir, o.ExcludeRun)+"/")
		}})
		if !ok {
			return nil
		}
		e := m.book.Get(found.Model.Seq)
		stored, err := m.graphOf(v, e)
		if err != nil {
			return err
		}
		a := &control.Match{Model: describe(e), Length: found.Length, Exact: found.Exact, Pairs: [][2]string{}, Tensors: []control.TransferTensor{}}
		for _, p := range found.Pairs {
			a.Pairs = append(a.Pairs, [2]string{g.Vertices[p.New].Name, stored.Vertices[p.Stored].Name})
		}
		sizes := map[string]int64{}
		if doc := v.modelManifest(e.Manifest); doc != nil {
			for i := range doc.Tensors {
				sizes[doc.Tensors[i].Name] = doc.Tensors[i].NumBytes()
			}
		}
		for _, t := range prefix.Tensors(g, stored, found.Pairs) {
			a.Tensors = append(a.Tensors, control.TransferTensor{New: t.New, Stored: t.Stored, Bytes: sizes[t.Stored]})
			a.Bytes += sizes[t.Stored]
		}
		out.Match = a
		return nil
	}
	if o.Like != "" {
		return out, v.settledAfterSave(ctx, ask)
	}
	return out, v.settled(ctx, ask)
}
