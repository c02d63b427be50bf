// Package ledger is the list of the models of a store: which file each commit of a checkpoint was, and where
// it stands in the lineage (package lineage). An entry is a record in a segment, of kind cas.Event, so that
// it outlives the index; an entry that changes is another record with a higher version, and the one before
// may be swept.
//
// # Record, version 1
//
// A number is an unsigned LEB128 varint of the fewest bytes, at most 2^63-1; a string is its length as a
// number and the bytes.
//
//	"CKE1"
//	seq         number, from 1: the model's place in the order of commits
//	version     number, from 1: of the records of one seq the highest counts
//	ino         number: the file's inode in tree/; 0 for a tombstone
//	manifest    32 bytes: the file's manifest
//	path        string: where the file was last, relative to the mount's root
//	time        number: when it was written, ns since 1970
//	size        number: bytes of the file
//	tensors     number: how many the manifest has
//	marks       number n, at most 16, then n times 8 bytes: the first of the digests of the largest tensors,
//	            which find models that may be alike
//	model       string: the record of lineage.Model
//	owners      string: the record of lineage.EncodeOwners; empty for a tombstone
//	graph       number of parts, then 32 bytes for each: records that hold an architecture; see Graph
//	graph from  string: the file that it was read from, relative to the model's directory
//
// A graph is kept as the bytes of graph.Encode, cut into records of at most cas.MaxChunk, each behind "CKGP"
// so that it is told from an entry.
package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ckptfs/cas"
	"ckptfs/index/lineage"
)

// Ledger is all models. It is not safe for concurrent use.
type Ledger struct {
	Forest *lineage.Forest
	Gen    uint64 // counts what changes

	entries map[uint64]*Entry
	byIno   map[uint64]*Entry   // live ones
	byPlace map[string][]*Entry // by placeOf their paths, in no order
	marks   map[uint64][]uint64 // mark → live models that have it, ascending
	last    uint64
	changed map[uint64]bool // entries that no record holds as they are
}

// New is the ledger that entries say, in any order; of one seq the highest version counts. What is wrong with
// one is in problems: it is left out, or loses its parent.
func New(entries []*Entry) (l *Ledger, problems []error) {
	l = &Ledger{Forest: lineage.New(), entries: map[uint64]*Entry{}, byIno: map[uint64]*Entry{},
		byPlace: map[string][]*Entry{}, marks: map[uint64][]uint64{}, changed: map[uint64]bool{}}
	for _, e := range entries {
		if old := l.entries[e.Seq]; old == nil || old.Version < e.Version {
			l.entries[e.Seq] = e
		}
	}
	for _, e := range l.sorted() {
		l.last = max(l.last, e.Seq)
		if err := l.Forest.Add(e.Model); err != nil {
			problems = append(problems, err)
			// Its parent's entry is lost. The model is there.
			l.orphan(e)
			if err := l.Forest.Add(e.Model); err != nil {
				delete(l.entries, e.Seq)
				continue
			}
			l.changed[e.Seq] = true
		}
		l.put(e)
		if e.RetiredAt == 0 {
			if other := l.byIno[e.Ino]; other != nil {
				problems = append(problems, fmt.Errorf("ledger: models %d and %d of one file: %w", other.Seq,
					e.Seq, cas.ErrCorrupt))
				l.retire(other, e.Time)
			}
			l.byIno[e.Ino] = e
			l.addMarks(e)
		}
	}
	return l, problems
}

// orphan makes a model own all that it has.
func (l *Ledger) orphan(e *Entry) {
	var all lineage.Share
	for _, s := range e.Owned {
		all.Tensors += s.Tensors
		all.Bytes += s.Bytes
	}
	e.Parent, e.How, e.MergedFrom, e.Owned = 0, lineage.None, nil, nil
	if all.Tensors > 0 {
		all.Owner = e.Seq
		e.Owned = []lineage.Share{all}
	}
	for i := range e.Owners {
		e.Owners[i] = e.Seq
	}
}

func (l *Ledger) sorted() []*Entry {
	out := make([]*Entry, 0, len(l.entries))
	for _, e := range l.entries {
		out = append(out, e)
	}
	slices.SortFunc(out, bySeq)
	return out
}

func bySeq(a, b *Entry) int { return cmp.Compare(a.Seq, b.Seq) }

// At lists the entries at or below a path by number; all for "".
func (l *Ledger) At(p string) []*Entry {
	if p == "" {
		return l.sorted()
	}
	of := l.byPlace[placeOf(p)]
	if strings.Count(p, "/") < depth-1 {
		of = l.sorted()
	}
	var out []*Entry
	for _, e := range of {
		if e.Path == p || strings.HasPrefix(e.Path, p) && e.Path[len(p)] == '/' {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, bySeq)
	return out
}

// depth is that of a step: runs/RUN/STEP.
const depth = 3

// placeOf is the first names of a path, the step's.
func placeOf(p string) string {
	n := 0
	for i := range len(p) {
		if p[i] == '/' {
			if n++; n == depth {
				return p[:i]
			}
		}
	}
	return p
}

// put has At find an entry.
func (l *Ledger) put(e *Entry) {
	at := placeOf(e.Path)
	l.byPlace[at] = append(l.byPlace[at], e)
}

// take undoes put.
func (l *Ledger) take(e *Entry) {
	at := placeOf(e.Path)
	l.byPlace[at] = slices.DeleteFunc(l.byPlace[at], func(o *Entry) bool { return o == e })
	if len(l.byPlace[at]) == 0 {
		delete(l.byPlace, at)
	}
}

// Get is the entry of a number, nil when there is none.
func (l *Ledger) Get(seq uint64) *Entry { return l.entries[seq] }

// ByIno is the live model that a file is, nil when it is none.
func (l *Ledger) ByIno(ino uint64) *Entry { return l.byIno[ino] }

// Len is how many models there are, with those that are gone.
func (l *Ledger) Len() int { return len(l.entries) }

// Next is the number of the next model.
func (l *Ledger) Next() uint64 { return l.last + 1 }

// Live lists the live models' files.
func (l *Ledger) Live() map[uint64]*Entry { return l.byIno }

// Add adds a model, whose number is Next, and whose file is no other's.
func (l *Ledger) Add(e *Entry) error {
	if e.Seq != l.Next() || e.Ino == 0 || l.byIno[e.Ino] != nil {
		return fmt.Errorf("ledger: model %d, file %d: %w", e.Seq, e.Ino, lineage.ErrOrder)
	}
	if err := l.Forest.Add(e.Model); err != nil {
		return err
	}
	e.Version = 1
	l.last = e.Seq
	l.entries[e.Seq], l.byIno[e.Ino] = e, e
	l.put(e)
	l.addMarks(e)
	l.changed[e.Seq] = true
	l.Gen++
	return nil
}

// Bury adds a model that has no file any more, whose number is Next.
func (l *Ledger) Bury(e *Entry, at int64) error {
	if e.Seq != l.Next() {
		return fmt.Errorf("ledger: model %d: %w", e.Seq, lineage.ErrOrder)
	}
	if err := l.Forest.Add(e.Model); err != nil {
		return err
	}
	l.last = e.Seq
	l.entries[e.Seq] = e
	l.put(e)
	l.retire(e, at)
	return nil
}

// Move notes that a model's file is elsewhere, or another inode.
func (l *Ledger) Move(e *Entry, ino uint64, path string) {
	if e.Ino == ino && e.Path == path && l.byIno[ino] == e {
		return
	}
	l.Detach(e)
	l.take(e)
	e.Ino, e.Path = ino, path
	l.put(e)
	l.byIno[ino] = e
	l.Change(e)
}

// Detach takes a live model from its file, which may become another's. Move or Retire has to follow.
func (l *Ledger) Detach(e *Entry) {
	if l.byIno[e.Ino] == e {
		delete(l.byIno, e.Ino)
	}
}

// Change notes that an entry is another now.
func (l *Ledger) Change(e *Entry) {
	l.Gen++
	if !l.changed[e.Seq] {
		e.Version++
		l.changed[e.Seq] = true
	}
}

// Retire makes a model a tombstone; a second time nothing happens.
func (l *Ledger) Retire(seq uint64, at int64) bool {
	e := l.entries[seq]
	if e == nil || e.RetiredAt != 0 || at == 0 {
		return false
	}
	l.retire(e, at)
	return true
}

func (l *Ledger) retire(e *Entry, at int64) {
	l.Forest.Retire(e.Seq, max(at, 1))
	if l.byIno[e.Ino] == e {
		delete(l.byIno, e.Ino)
	}
	for _, m := range e.Marks {
		l.marks[m] = slices.DeleteFunc(l.marks[m], func(s uint64) bool { return s == e.Seq })
		if len(l.marks[m]) == 0 {
			delete(l.marks, m)
		}
	}
	e.RetiredAt, e.Ino = max(at, 1), 0
	e.Owned, e.Owners, e.Marks, e.Graph, e.GraphFrom = nil, nil, nil, nil, ""
	l.Change(e)
}

// Reparent gives a model another parent, and the owners that follow from it.
func (l *Ledger) Reparent(e *Entry, parent uint64, how lineage.How, owners []uint64,
	owned []lineage.Share) error {
	if err := l.Forest.Reparent(e.Seq, parent, how, owned); err != nil {
		return err
	}
	e.Parent, e.How, e.Owners, e.Owned = parent, how, owners, owned
	l.Change(e)
	return nil
}

// Merge replaces the further parents of a model.
func (l *Ledger) Merge(e *Entry, from []uint64) error {
	if err := l.Forest.Merge(e.Seq, from); err != nil {
		return err
	}
	e.MergedFrom = from
	l.Change(e)
	return nil
}

func (l *Ledger) addMarks(e *Entry) {
	for _, m := range e.Marks {
		l.marks[m] = append(l.marks[m], e.Seq)
	}
}

// Like lists the live models that share marks with these: those with most first, and of as many the latest.
func (l *Ledger) Like(marks []uint64) []*Entry {
	n := map[*Entry]int{}
	for _, m := range marks {
		for _, s := range l.marks[m] {
			n[l.entries[s]]++
		}
	}
	return slices.SortedFunc(maps.Keys(n), func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(n[b], n[a]), cmp.Compare(b.Seq, a.Seq))
	})
}

// Sweep forgets tombstones that nothing needs.
func (l *Ledger) Sweep() int {
	gone := l.Forest.Sweep()
	for _, seq := range gone {
		if e := l.entries[seq]; e != nil {
			l.take(e)
		}
		delete(l.entries, seq)
		delete(l.changed, seq)
	}
	return len(gone)
}

// Changed lists the entries that have to be recorded, by number.
func (l *Ledger) Changed() []*Entry {
	var out []*Entry
	for seq := range l.changed {
		if e := l.entries[seq]; e != nil {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, bySeq)
	return out
}

// Recorded notes that a record holds an entry as it is.
func (l *Ledger) Recorded(e *Entry, record cas.Hash) {
	e.Record = record
	delete(l.changed, e.Seq)
}

// Records are the hashes of the records in use.
func (l *Ledger) Records(keep func(cas.Hash)) {
	for _, e := range l.entries {
		if !e.Record.IsZero() {
			keep(e.Record)
		}
		for _, h := range e.Graph {
			keep(h)
		}
	}
}

// ErrUnknown: a file is no model.
var ErrUnknown = errors.New("no model: only packed files with tensors below runs/ are, once their step is complete")
