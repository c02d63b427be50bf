package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

// push is one Push.
type push struct {
	w       *Writer
	src     *source
	changes Changes
	last    error // why it was interrupted
	looked  bool
	whole   map[cas.Hash]*objects.Whole // files that are there

	mu     sync.Mutex
	result Result // Objects and Bytes under mu while objects are put

	// Of an attempt:
	id      record.ID // of the commit
	clock   int64
	entries []record.Entry // to be committed, ascending
	failed  map[string]bool
}

func newPush(w *Writer, src objects.Source, ch Changes) *push {
	return &push{w: w, changes: ch, src: &source{Source: src, lost: map[cas.Hash]error{}}}
}

// prepare makes the entries, but for what says where files lie.
func (p *push) prepare(ctx context.Context) (err error) {
	if p.id, err = record.DrawID(p.w.Random); err != nil {
		return err
	}
	if err := p.w.readCovers(ctx); err != nil {
		return err
	}
	own, head := p.w.id.Writer, p.w.head
	p.clock = max(head.Clock, p.changes.Seen)
	p.entries = slices.Clone(p.changes.Entries)
	for i := range p.entries {
		e := &p.entries[i]
		e.Over = p.w.over(e)
		for _, o := range e.Over {
			p.clock = max(p.clock, o.Version)
		}
	}
	p.clock++
	for i := range p.entries {
		p.entries[i].Origin, p.entries[i].Version = own, p.clock
	}
	sortEntries(p.entries, own)
	for i := range p.entries[min(1, len(p.entries)):] {
		if p.entries[i].Path == p.entries[i+1].Path {
			return fmt.Errorf("%q is changed twice", p.entries[i].Path)
		}
	}
	p.failed, p.result.Failed = map[string]bool{}, nil
	for i := range p.entries {
		err := p.check(p.entries[i])
		if errors.Is(err, cas.ErrTooLarge) && p.entries[i].Removed != nil {
			p.entries[i].Removed = nil
			err = p.check(p.entries[i])
		}
		if err != nil {
			p.fail(p.entries[i].Path, err)
		}
	}
	p.dropFailed()
	return p.dropRepeated(ctx)
}

// roomForDeps is what the objects of a file take in its entry at most: 20,000, of a terabyte.
const roomForDeps = 64 << 10

// check returns an error if no head can hold an entry, wherever its file lies.
func (p *push) check(e record.Entry) error {
	if e.File != nil && !e.File.Manifest.IsZero() {
		f := *e.File
		f.Plan = record.Ref{Object: p.id, Off: segment.FileHeaderSize, Stored: 1}
		f.Deps = []record.ID{p.id}
		if f.Model != nil {
			m := *f.Model
			m.Graph = slices.Clone(m.Graph)
			for i := range m.Graph {
				m.Graph[i].Ref = f.Plan
			}
			f.Model = &m
		}
		e.File = &f
	}
	c := record.Commit{Writer: p.w.id.Writer, ID: p.id, Sequence: 1, Entries: []record.Entry{e}}
	b, err := c.Encode()
	if err != nil {
		return cmp.Or(errors.Unwrap(err), err)
	}
	if len(b) > record.MaxEntry-roomForDeps {
		return fmt.Errorf("%.200q: entry of %d bytes: %w", e.Path, len(b), cas.ErrTooLarge)
	}
	return nil
}

// fail leaves a path out.
func (p *push) fail(path string, err error) {
	p.failed[path] = true
	p.result.Failed = append(p.result.Failed, Failed{path, err})
}

// dropFailed takes out of the entries what failed.
func (p *push) dropFailed() { p.entries = p.rest() }

// rest are the entries that did not fail.
func (p *push) rest() []record.Entry {
	return slices.DeleteFunc(slices.Clone(p.entries), func(e record.Entry) bool { return p.failed[e.Path] })
}

// over is what an entry is to be over: what it says, and what the own entries of its path are over.
func (w *Writer) over(e *record.Entry) []record.Replaced {
	versions := map[record.Writer]int64{}
	add := func(over []record.Replaced) {
		for _, o := range over {
			if o.Writer != w.id.Writer {
				versions[o.Writer] = max(versions[o.Writer], o.Version)
			}
		}
	}
	add(e.Over)
	for _, before := range w.head.Find(e.Path) {
		add(before.Over)
	}
	for i := range w.head.Tables {
		add(w.covers[w.head.Tables[i].ID][e.Path])
	}
	if len(versions) == 0 {
		return nil
	}
	over := make([]record.Replaced, 0, len(versions))
	for _, writer := range slices.Sorted(maps.Keys(versions)) {
		over = append(over, record.Replaced{Writer: writer, Version: versions[writer]})
	}
	return over
}

// look finds out what of the files is there that State does not know. What it found is held against the
// epochs of each attempt.
func (p *push) look(ctx context.Context) (err error) {
	if p.looked || p.changes.Look == nil || len(p.entries) == 0 {
		return nil
	}
	if p.whole, err = p.changes.Look(ctx); err == nil {
		p.looked = true
	}
	return err
}

// upload puts what the files need, and says in the entries where it lies.
func (p *push) upload(ctx context.Context) error {
	var filed []int // entries that the packer has, by their order there
	ups := p.begin(ctx)
	packer := objects.New(objects.Options{Source: p.src, Places: p.w.State, Whole: p.whole,
		Random: p.w.Random, Put: ups.put})
	err := func() error {
		for i := range p.entries {
			e := &p.entries[i]
			if e.File == nil || e.File.Manifest.IsZero() {
				continue
			}
			var lost *objects.LostError
			switch err := packer.Add(e.File.Manifest, graphOf(e)); {
			case errors.Is(err, errAgain):
				return err
			case errors.As(err, &lost):
				p.fail(e.Path, lost)
			case err != nil:
				return err
			default:
				filed = append(filed, i)
			}
		}
		if len(filed) == 0 {
			return nil
		}
		places, err := packer.Finish(func(places []objects.Filed) ([][]byte, error) {
			p.file(filed, places)
			return p.records(p.rest())
		})
		if err == nil {
			p.file(filed, places)
		}
		return err
	}()
	if waited := ups.wait(); waited != nil {
		err = cmp.Or(waited, err)
	}
	p.dropFailed()
	return err
}

func graphOf(e *record.Entry) (parts []cas.Hash) {
	if e.File.Model != nil {
		for _, part := range e.File.Model.Graph {
			parts = append(parts, part.Hash)
		}
	}
	return parts
}

// file says in entries where their files lie.
func (p *push) file(entries []int, places []objects.Filed) {
	for k, i := range entries {
		f := *p.entries[i].File
		f.Plan, f.Deps = places[k].Plan, places[k].Deps
		if f.Model != nil {
			m := *f.Model
			m.Graph = places[k].Graph
			f.Model = &m
		}
		p.entries[i].File = &f
	}
}

// records are the commit records of entries: one, unless there are too many.
func (p *push) records(entries []record.Entry) ([][]byte, error) {
	c := &record.Commit{Writer: p.w.id.Writer, ID: p.id, Sequence: p.w.head.Sequence + 1, Entries: entries}
	b, err := c.Encode()
	if !errors.Is(err, cas.ErrTooLarge) || len(entries) < 2 {
		return [][]byte{b}, err
	}
	first, err := p.records(entries[:len(entries)/2])
	if err != nil {
		return nil, err
	}
	second, err := p.records(entries[len(entries)/2:])
	return append(first, second...), err
}
