package models

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
	"ckptfs/fs/control"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
	"ckptfs/index/graph"
	"ckptfs/index/ledger"
	"ckptfs/index/prefix"
)

// qualityMetric is the metric of a step by which matches of equal length are ranked; greater is better.
const qualityMetric = "quality"

// catalogue is the live models by their architectures, as of one moment of the ledger. Queries need no lock
// of models: they find in it all that an answer is made of.
type catalogue struct {
	*prefix.Catalogue
	gen     uint64 // of the ledger
	changes int    // since it was restored

	// its file's hash, gen of when that was written, and the problems then; zero: another process wrote it
	tried         bool // this process wrote it, or failed to; savedChanges is changes then
	savedChanges  int
	saved         cas.Hash
	savedGen      uint64
	savedProblems int

	mu   locks.RWMutex[knownLock]
	in   map[uint64]*known // models, by number
	left *leftModels       // those that may not be in yet; nil for most
}

// savedAsOf reports whether a catalogue is as the ledger and the problems of a moment, and so is its file.
func (c *catalogue) savedAsOf(gen uint64, problems int) bool {
	return !c.saved.IsZero() && c.gen == gen && c.savedGen == gen && c.changes == c.savedChanges &&
		c.savedProblems == problems
}

// known is a model in the catalogue. It is replaced, never changed.
type known struct {
	control.Model
	ino      uint64
	from     string // Entry.GraphFrom
	graph    []cas.Hash
	manifest cas.Hash
	quality  float64
}

func knownOf(e *ledger.Entry, quality float64) *known {
	return &known{Model: describe(e), ino: e.Ino, from: e.GraphFrom, graph: e.Graph, manifest: e.Manifest,
		quality: quality}
}

func (c *catalogue) get(seq uint64) *known {
	c.mu.RLock()
	k := c.in[seq]
	c.mu.RUnlock()
	if k == nil && c.left != nil {
		if e := c.left.get(seq); e != nil {
			k = knownOf(e, math.NaN())
			c.set(seq, k)
		}
	}
	return k
}

func (c *catalogue) set(seq uint64, k *known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k == nil {
		delete(c.in, seq)
	} else {
		c.in[seq] = k
	}
}

// cataloguedLocked reports whether a match was asked for.
func (m *Models) cataloguedLocked() bool { return m.catalogue.Load() != nil || m.left.Load() != nil }

// upToDateLocked brings the catalogue up to the ledger. The ledger is settled.
func (m *Models) upToDateLocked() *catalogue {
	m.mu.AssertHeld()
	c := m.catalogue.Load()
	if c == nil {
		c = m.restoreCatalogueLocked()
	} else if c.gen == m.book.Gen && !m.recheck {
		return c
	}
	c.gen, m.recheck = m.book.Gen, false
	live := map[uint64]bool{}
	var fresh []*known
	for _, e := range m.book.Live() {
		live[e.Seq] = true
		k := knownOf(e, m.qualityOfLocked(e))
		old := c.get(e.Seq)
		switch {
		case old != nil && old.from == k.from:
			if k.quality != old.quality && !(math.IsNaN(k.quality) && math.IsNaN(old.quality)) {
				c.SetQuality(e.Seq, k.quality)
				c.changes++
			}
			c.set(e.Seq, k)
			continue
		case old != nil:
			c.Retire(e.Seq)
			c.changes++
			c.set(e.Seq, nil)
		}
		if len(e.Graph) > 0 {
			fresh = append(fresh, k)
			c.set(e.Seq, k) // before it is found
		}
	}
	c.Fill(len(fresh), func(i int, r *graph.OutlineReader) (prefix.Model, *graph.Outline, error) {
		p, err := m.graphRecord(fresh[i].graph)
		if err != nil {
			return prefix.Model{}, nil, err
		}
		g, err := r.Read(p)
		return prefix.Model{Seq: fresh[i].Seq, Quality: fresh[i].quality}, g, err
	}, func(i int, err error) {
		c.set(fresh[i].Seq, nil)
		m.o.noGraph(fresh[i], err)
	})
	var gone []uint64
	c.mu.RLock()
	for seq := range c.in {
		if !live[seq] {
			gone = append(gone, seq)
		}
	}
	c.mu.RUnlock()
	for _, seq := range gone {
		c.Retire(seq)
		c.set(seq, nil)
	}
	c.changes += len(fresh) + len(gone)
	m.catalogue.Store(c)
	m.left.Store(nil)
	return c
}

// qualityOfLocked is what a model's step says of its quality; NaN when it says nothing.
func (m *Models) qualityOfLocked(e *ledger.Entry) float64 {
	m.mu.AssertHeld()
	run, step, _ := steps.In(e.Path)
	if st := m.seen[run+"/"+step]; st != nil {
		if q, ok := st.Metrics.Get(qualityMetric); ok {
			return q
		}
	}
	return math.NaN()
}

// noGraph tells of a model whose graph cannot be read.
func (o *Options) noGraph(k *known, err error) {
	o.Report(slog.LevelWarn, "the architecture of a model cannot be read: it takes no part in matches", "path", k.Path, "reason", err)
}

// saveAfter is how many changes of the catalogue are worth a snapshot at once. Fewer are saved when the tree
// comes to rest, or at the end, or are lost, and made again.
const saveAfter = 1000

// worthSaving reports whether a snapshot is worth its bytes at once. The first one of a process is: it took a
// look at every step.
func (c *catalogue) worthSaving() bool { return !c.tried || c.changes-c.savedChanges >= saveAfter }

// saveCatalogueLocked leaves the next start a snapshot of the catalogue, if there is one.
func (m *Models) saveCatalogueLocked() {
	m.mu.AssertHeld()
	c := m.catalogue.Load()
	if c == nil || m.o.ReadOnly {
		return
	}
	c.tried, c.savedChanges = true, c.changes
	index := c.Snapshot(func(seq uint64) prefix.Tag {
		if k := c.get(seq); k != nil {
			return tagOf(k.graph)
		}
		return prefix.Tag{}
	})
	var p []byte
	var h cas.Hash
	at := asOf{epoch: m.o.Epoch(), problems: len(m.problems), prints: m.o.Steps.Prints(m.seen)}
	var err error
	if at.folders, err = m.o.Steps.Folders(); err == nil {
		p, h, err = encodeLeft(index, m.book.Live(), at)
	}
	// Nothing is synced: what a power cut leaves of it is seen to be damaged, and not used.
	const name = tree.CatalogueFile
	if err == nil {
		err = tree.WriteNew(m.o.Folder, name+".new", p)
	}
	if err == nil {
		err = m.o.Folder.Rename(name+".new", name)
	}
	if err != nil {
		_ = m.o.Folder.Remove(name + ".new")
		m.o.Report(slog.LevelWarn, "the next start makes the catalogue of architectures again", "reason", err)
		return
	}
	c.saved, c.savedGen, c.savedProblems = h, m.book.Gen, len(m.problems)
}

// tagOf identifies a graph by its parts.
func tagOf(parts []cas.Hash) prefix.Tag {
	var p []byte
	for _, h := range parts {
		p = append(p, h[:]...)
	}
	h := cas.Sum(p)
	return prefix.Tag(h[:])
}

// readCatalogue reads the last snapshot in a store's folder.
func readCatalogue(folder *disk.Folder) ([]byte, error) {
	f, err := folder.Open(tree.CatalogueFile, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	p := make([]byte, st.Size())
	_, err = io.ReadFull(f, p)
	return p, err
}

// restoreCatalogueLocked is what of the last snapshot the ledger still says; empty when there is none.
func (m *Models) restoreCatalogueLocked() *catalogue {
	m.mu.AssertHeld()
	in := map[uint64]*known{}
	p, err := readCatalogue(m.o.Folder)
	var index []byte
	if err == nil {
		index, _, err = decodeLeft(p)
	}
	if err == nil {
		var c *prefix.Catalogue
		dropped := 0
		c, err = prefix.Restore(index, func(model prefix.Model, tag prefix.Tag) bool {
			e := m.book.Get(model.Seq)
			if e == nil || e.RetiredAt != 0 || len(e.Graph) == 0 || tagOf(e.Graph) != tag {
				dropped++
				return false
			}
			in[e.Seq] = knownOf(e, model.Quality)
			return true
		})
		if err == nil {
			return &catalogue{Catalogue: c, in: in, changes: dropped}
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		m.uselessLocked(err)
	}
	return &catalogue{Catalogue: prefix.New(), in: map[uint64]*known{}}
}
