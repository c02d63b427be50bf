package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/locks"
	"ckptfs/fs/control"
	"ckptfs/fs/inspect"
	"ckptfs/fs/steps"
	"ckptfs/index/graph"
	"ckptfs/index/graph/source"
	"ckptfs/index/ledger"
	"ckptfs/index/manifest"
	"ckptfs/index/prefix"
)

// graphParts are records of graphs that are not durable yet.
type graphParts struct {
	mu locks.Mutex[leafLock]
	m  map[cas.Hash][]byte
}

func (g *graphParts) put(h cas.Hash, record []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.m == nil {
		g.m = map[cas.Hash][]byte{}
	}
	g.m[h] = record
}

func (g *graphParts) get(h cas.Hash) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.m[h]
}

func (g *graphParts) all() map[cas.Hash][]byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.m)
}

func (g *graphParts) clear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.m)
}

// graphOf finds the graph of a model. same: it is read from what it was read from before (from).
func (s *reconciler) graphOf(p *stepPlace, m *manifest.Manifest,
	before string) (g *graph.Graph, from string, same bool) {
	at, rel := path.Join(steps.Dir, p.run, p.step.Name), p.rel
	if p.step.IsFile {
		at, rel = path.Dir(at), p.step.Name
	}
	files := make([]source.File, p.step.Files.Len())
	for i, f := range p.step.Files.All() {
		files[i] = source.File{Rel: f.Rel, Stamp: fmt.Sprintf("%d:%d:%d", f.Ino, f.Mtime, f.Size)}
		if p.step.IsFile {
			files[i].Rel = rel
		}
		if f.Rel == p.rel {
			files[i].Attr = s.graphAttr(p)
		}
	}
	tensors, behind := m.Tensors, ""
	set := s.shardsOf(p)
	if set != nil {
		if path.Base(p.rel) != set.Files[0] {
			from = partOf + path.Base(set.Index)
			return nil, from, before == from
		}
		var ok bool
		if tensors, behind, ok = s.tensorsOf(set, m); !ok {
			return nil, "", before == ""
		}
	}
	for _, src := range source.Find(files, rel, m.Format) {
		key := src.Key + behind
		if before != "" && (key == before || set == nil && src.Own(rel) && ownKey(before, rel)) {
			s.taken[path.Join(at, src.Rel)] = true
			return nil, before, true
		}
		g, err := source.Read(&src, func(rel string) (io.ReaderAt, int64, func(), error) {
			return s.open(path.Join(at, rel), p.inode(rel))
		}, tensors)
		if err == nil {
			s.taken[path.Join(at, src.Rel)] = true
			return g, key, false
		}
		if src.Kind == graph.Explicit && errors.Is(err, graph.ErrInvalid) &&
			!errors.Is(err, source.ErrAbsent) {
			s.refused[path.Join(at, src.Rel)] = err
		}
	}
	return nil, "", false
}

// graphAttr is the attribute of a model that has its graph; nil when there is none.
func (s *reconciler) graphAttr(p *stepPlace) []byte {
	value, err := s.o.Files.Attribute(p.path, p.ino, source.Xattr)
	if err != nil {
		return nil
	}
	return value
}

// ownKey reports whether a key is that of such a source.
func ownKey(key, rel string) bool {
	kind, rest, ok := strings.Cut(key, " ")
	return !ok && kind == key || strings.HasPrefix(rest, rel+" ")
}

// keepGraphLocked makes a graph that of an entry, to be recorded with it. A graph that is too large is none.
func (m *Models) keepGraphLocked(e *ledger.Entry, g *graph.Graph, from string) {
	m.mu.AssertHeld()
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
		m.parts.put(h, record)
		e.Graph = append(e.Graph, h)
		p = p[n:]
	}
}

// graphRecord is a graph's record, from its parts.
func (m *Models) graphRecord(parts []cas.Hash) ([]byte, error) {
	var p []byte
	for _, h := range parts {
		record := m.parts.get(h)
		if record == nil {
			var err error
			if record, err = m.o.Store.Get(h, nil); err != nil {
				return nil, err
			}
		}
		p = append(p, strings.TrimPrefix(string(record), ledger.GraphMagic)...)
	}
	return p, nil
}

// readGraph is the graph of a record, which is others', too.
func (m *Models) readGraph(parts []cas.Hash) (*graph.Graph, error) {
	if len(parts) == 1 {
		if g := m.graphs.get(parts[0]); g != nil {
			return g, nil
		}
	}
	p, err := m.graphRecord(parts)
	if err != nil {
		return nil, err
	}
	g, err := graph.Decode(p)
	if err == nil && len(parts) == 1 {
		m.graphs.put(parts[0], g, len(p))
	}
	return g, err
}

// transferred maps the tensors of a model that a transfer read under other names to those of the parent: by
// the prefix that the architectures have in common, as far as they are known, and by what the model's step
// says, which counts.
func (m *Models) transferred(e, parent *ledger.Entry, said map[string]string) map[string]string {
	if len(e.Graph) == 0 || len(parent.Graph) == 0 {
		return said
	}
	g, err := m.readGraph(e.Graph)
	if err != nil {
		return said
	}
	stored, err := m.readGraph(parent.Graph)
	if err != nil {
		return said
	}
	pairs, _ := prefix.Common(g, stored, 0)
	read := map[string]string{}
	for _, t := range prefix.Tensors(g, stored, pairs) {
		read[t.New] = t.Stored
	}
	maps.Copy(read, said)
	return read
}

// Match finds the stored model with the longest prefix in common with an architecture, and its file, pinned;
// nil when there is none.
func (m *Models) Match(ctx context.Context,
	o control.MatchOptions) (out *control.MatchAnswer, n inspect.File, err error) {
	if o.Like != "" {
		like := m.o.Files.Source(o.Like)
		if c, k := m.likeLeft(like); k != nil {
			if g, err := m.readGraph(k.graph); err == nil {
				return m.answerTo(ctx, c, g, k.Seq, o.ExcludeRun)
			}
		}
		var c *catalogue
		var g *graph.Graph
		var self uint64
		err := m.withAfterSave(ctx, func() error {
			e, err := m.oneGraphLocked(like)
			if err != nil {
				return err
			}
			if len(e.Graph) == 0 {
				return &fs.PathError{Op: "match", Path: o.Like, Err: control.NoData("its architecture is not known")}
			}
			if g, err = m.readGraph(e.Graph); err != nil {
				return &fs.PathError{Op: "match", Path: o.Like, Err: err}
			}
			c, self = toAsk(m), e.Seq
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		return m.answerTo(ctx, c, g, self, o.ExcludeRun)
	}
	g, err := source.ParseExplicit(o.Graph, nil)
	if err != nil {
		return nil, nil, control.Invalid("match: %v", err)
	}
	if c := cmp.Or(m.catalogue.Load(), m.leftBehind()); o.AsKnown && c != nil {
		if !m.o.ReadOnly && m.o.Steps.Touched() {
			m.Rouse()
		}
		return m.answerTo(ctx, c, g, 0, o.ExcludeRun)
	}
	if c := m.asLeft(); c != nil {
		return m.answerTo(ctx, c, g, 0, o.ExcludeRun)
	}
	var c *catalogue
	err = m.with(ctx, func() error {
		c = toAsk(m)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return m.answerTo(ctx, c, g, 0, o.ExcludeRun)
}

// toAsk is upToDateLocked for a caller who asks. What is worth a snapshot is saved behind him.
func toAsk(m *Models) *catalogue {
	c := m.upToDateLocked()
	if c.worthSaving() {
		m.Rouse()
	}
	return c
}

// matchTime bounds the search for an answer, which then says that there may be a better one. Graphs that come
// near it are made for that.
const matchTime = 5 * time.Second

// answerTo finds the best model for g but self, whose file is still there, and takes a reference to that. It
// may take matchTime, so Models.mu is not held.
func (m *Models) answerTo(ctx context.Context, c *catalogue, g *graph.Graph, self uint64,
	excludeRun string) (*control.MatchAnswer, inspect.File, error) {
	out := &control.MatchAnswer{GraphKind: g.Kind.String(), Vertices: len(g.Vertices)}
	gone := map[uint64]bool{self: true}
	ended := m.o.Now().Add(matchTime)
	late := func() bool { return m.o.Now().After(ended) }
	q := prefix.Query{Stop: func() bool { return ctx.Err() != nil || late() }}
	if excludeRun != "" {
		excludeRun = path.Join(steps.Dir, excludeRun) + "/"
	}
	for {
		if self != 0 || excludeRun != "" || len(gone) > 1 {
			q.Exclude = func(seq uint64) bool {
				if gone[seq] || excludeRun == "" {
					return gone[seq]
				}
				k := c.get(seq)
				return k == nil || strings.HasPrefix(k.Path, excludeRun)
			}
		}
		found, ok := c.Find(g, q)
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case !ok && late():
			return nil, nil, fmt.Errorf("match: nothing was found in %v: %w", matchTime, unix.ETIMEDOUT)
		case !ok:
			return out, nil, nil
		}
		seq := found.Model.Seq
		k := c.get(seq)
		if k == nil {
			gone[seq] = true
			continue
		}
		n, err := m.o.Files.OpenInode(k.Path, k.ino)
		if err != nil {
			gone[seq] = true
			continue
		}
		if out.Match, err = m.describeMatch(k, g, &found); err != nil {
			n.Unpin()
			m.o.noGraph(k, err)
			gone[seq] = true
			continue
		}
		return out, n, nil
	}
}

func (m *Models) describeMatch(k *known, g *graph.Graph, found *prefix.Match) (*control.Match, error) {
	stored, err := m.readGraph(k.graph)
	if err != nil {
		return nil, err
	}
	a := &control.Match{Model: k.Model, Length: found.Length, Exact: found.Exact, Pairs: [][2]string{},
		Tensors: []control.TransferTensor{}}
	for _, p := range found.Pairs {
		a.Pairs = append(a.Pairs, [2]string{g.Vertices[p.New].Name, stored.Vertices[p.Stored].Name})
	}
	sizes := map[string]int64{}
	docs := []*manifest.Manifest{m.modelManifest(k.manifest)}
	if index := indexOf(k.Path, k.from); index != "" {
		set := m.ReadShards(index)
		if set == nil {
			return nil, fmt.Errorf("%s: %w", index, unix.ENOENT)
		}
		a.Path = index
		for _, file := range set.Files[1:] {
			p := stepPlace{path: path.Join(path.Dir(index), file)}
			if ok, err := m.lookAtPlace(&p); !ok {
				return nil, fmt.Errorf("%s: %w", p.path, cmp.Or(err, error(unix.ENOENT)))
			}
			docs = append(docs, m.modelManifest(p.manifest))
		}
		a.Size = 0
	}
	for _, doc := range docs {
		if doc == nil {
			continue
		}
		if a.Path != k.Path {
			a.Size += doc.Size
		}
		for i := range doc.Tensors {
			sizes[doc.Tensors[i].Name] = doc.Tensors[i].NumBytes()
		}
	}
	for _, t := range prefix.Tensors(g, stored, found.Pairs) {
		a.Tensors = append(a.Tensors,
			control.TransferTensor{New: t.New, Stored: t.Stored, Bytes: sizes[t.Stored]})
		a.Bytes += sizes[t.Stored]
	}
	return a, nil
}
