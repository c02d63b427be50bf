// Package mend makes heads again that were deleted, damaged, or put back to an earlier version by hand, so
// that acknowledged commits are missing. Writers refuse to commit to such a head (writer.ErrRolledBack).
//
// What a head said is known from
//
//	the head as a local store read it last    with its tables, if they are there
//	the head that is there                    may be another line of commits: one of a copied disk
//	the commit records in meta objects        of the commits that the former two do not have
//
// All of it goes into the new head; of a path and origin the entry of the highest version counts. So no
// committed version is lost that any of them has. What was deleted after the last of them comes back. Commits
// that were never made, since their writer died before, may be among the records: they are taken, too.
//
// # What an epoch condemned
//
// While the head was missing, a collector may have condemned what it needed. A head that is made again obeys
// what any commit obeys: the head is there and was read before gc/state is, epoch E, and none of its entries
// needs an object that an epoch up to E names. Entries that do are not put into the head. If their objects
// are all there, the caller brings them into the local store, and publishes them again (Report.Revive).
//
// If the new head is exactly the one that was read last, it keeps its commit, and its writer goes on. Else it
// has a commit of its own, and the writer registers again.
package mend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/survey"
)

// Options say what is known.
type Options struct {
	Remote record.ID
	// Kept are heads as they were read, or committed, last.
	Kept map[record.Writer]*record.Head
	// From are writers of whom nothing is known but commit records. Most of such were folded long ago.
	From []record.Writer
	// Parallel is how many objects are read at a time; 0: as many as are worth it.
	Parallel int
	Now      func() time.Time
	Random   io.Reader
	Say      func(doing string, n int64)
}

// Report is what was done.
type Report struct {
	Mended  []Mended // heads
	Orphans []Orphan // writers without a head of whom there are commit records
	// Revive are entries that are in no head, and have to be published again.
	Revive  []record.Entry
	Lost    []Lost
	Damaged []string // meta objects that could not be read
}

// Mended is a head that was made again.
type Mended struct {
	Writer   record.Writer
	Was      string // what was wrong
	Same     bool   // it is the one that was read last
	Sequence int64
	Entries  int
}

// Orphan is a writer without a head.
type Orphan struct {
	Writer  record.Writer
	Commits int
	Last    time.Time // by the engine's clock
}

// Lost is an entry whose objects are not there.
type Lost struct {
	Path   string
	Writer record.Writer
	Object record.ID // one of them
}

type mending struct {
	scanned
	o   Options
	b   bucket.Bucket
	say func(string, int64)
	rep *Report

	heads *survey.Reading
}

// Run mends all heads that need it.
func Run(ctx context.Context, b bucket.Bucket, o Options) (*Report, error) {
	m := &mending{o: o, b: b, say: o.Say, rep: &Report{}}
	m.commits = map[record.Writer][]commit{}
	if m.say == nil {
		m.say = func(string, int64) {}
	}
	m.heads = survey.New(b, o.Remote, m.say)
	m.heads.Bad = func(string, record.Writer, error) {} // each damaged head has its own turn
	if err := m.scan(ctx); err != nil {
		return nil, err
	}
	slices.Sort(m.damaged)
	m.rep.Damaged = m.damaged
	writers, err := m.writers(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range writers {
		if err := m.writer(ctx, w); err != nil {
			return m.rep, fmt.Errorf("%s: %w", record.HeadKey(w), err)
		}
	}
	return m.rep, nil
}

// writers are all of whom anything is known. @index is made otherwise.
func (m *mending) writers(ctx context.Context) ([]record.Writer, error) {
	all := map[record.Writer]bool{}
	for info, err := range m.b.List(ctx, record.Heads, "") {
		if err != nil {
			return nil, err
		}
		if w, ok := record.ParseHead(info.Key); ok {
			all[w] = true
		}
	}
	for w := range m.o.Kept {
		all[w] = true
	}
	for w := range m.commits {
		all[w] = true
	}
	delete(all, record.IndexWriter)
	return slices.Sorted(maps.Keys(all)), nil
}

// there is a head as it is.
type there struct {
	head    *record.Head // nil: there is none, or it cannot be read
	version bucket.Version
	lists   [][]record.Entry // its tail and tables, as far as these can be read
	lost    bool             // a table cannot be read
	why     error            // what is wrong with it
}

func (m *mending) get(ctx context.Context, w record.Writer) (t there, err error) {
	p, info, err := bucket.Read(ctx, m.b, record.HeadKey(w), record.MaxHead, "")
	t.version = info.Version
	if err == nil {
		t.head, err = record.DecodeHead(w, p)
	}
	if err == nil {
		if err = t.head.CheckRemote(w, m.o.Remote); err != nil {
			t.head = nil
		}
	}
	if damage(err) {
		t.why, err = err, nil
	}
	if err != nil || t.head == nil {
		return t, err
	}
	t.lists, t.why, err = m.lists(ctx, w, t.head)
	t.lost = t.why != nil
	return t, err
}

func damage(err error) bool {
	return slices.ContainsFunc([]error{cas.ErrCorrupt, bucket.ErrNotFound, bucket.ErrTooLarge,
		bucket.ErrRange},
		func(kind error) bool { return errors.Is(err, kind) })
}

// lists reads what a head holds. why is what is wrong with a table.
func (m *mending) lists(ctx context.Context, w record.Writer, h *record.Head) (lists [][]record.Entry, why,
	err error) {
	lists = [][]record.Entry{h.Tail}
	for _, t := range h.Tables {
		list, err := m.table(ctx, w, t)
		switch {
		case damage(err):
			why = fmt.Errorf("table %s: %w", t.ID, err)
		case err != nil:
			return nil, nil, err
		}
		lists = append(lists, list)
	}
	return lists, why, nil
}

// table reads a table; with an error, what comes before the damage.
func (m *mending) table(ctx context.Context, w record.Writer, t record.Table) (
	entries []record.Entry, err error) {
	read, err := m.heads.ReadTable(ctx, w, t)
	if err != nil {
		return nil, err
	}
	err = read.Each(func(part []record.Entry) { entries = append(entries, part...) })
	return entries, err
}

// writer mends the head of a writer, if it needs that.
func (m *mending) writer(ctx context.Context, w record.Writer) error {
	t, err := m.get(ctx, w)
	if err != nil {
		return err
	}
	kept := m.o.Kept[w]
	if kept == nil {
		kept = &record.Head{}
	}
	var was string
	switch {
	case t.version == "" && kept.Sequence > 0 && !kept.Folded:
		was = "it is gone"
	case t.version == "" && !slices.Contains(m.o.From, w):
		if all := m.commits[w]; len(all) > 0 && kept.Sequence == 0 {
			m.rep.Orphans = append(m.rep.Orphans, Orphan{w, len(all), all[len(all)-1].put})
		}
		return nil
	case t.version == "":
		was = "there is none"
	case t.why != nil:
		was = t.why.Error()
	case t.head.Sequence < kept.Sequence:
		was = fmt.Sprintf("it is of commit %d, and %d was read before", t.head.Sequence, kept.Sequence)
	default:
		return nil
	}
	if t.version == "" { // a head is there before gc/state is read
		_, err := m.b.Put(ctx, record.HeadKey(w), bucket.Bytes(nil), bucket.Cond{Absent: true})
		if err != nil && !errors.Is(err, bucket.ErrPrecondition) {
			return err
		}
		if t, err = m.get(ctx, w); err != nil {
			return err
		}
	}
	return m.mend(ctx, w, t, kept, was)
}

// mend makes a head, in the place of t.
func (m *mending) mend(ctx context.Context, w record.Writer, t there, kept *record.Head, was string) error {
	epoch, gone, err := m.epochs(ctx)
	if err != nil {
		return err
	}
	best, lists, lost := t.head, t.lists, t.lost
	if best == nil || kept.Sequence > best.Sequence {
		if best = kept; best.Sequence > 0 {
			more, why, err := m.lists(ctx, w, kept)
			if err != nil {
				return err
			}
			lists, lost = append(more, lists...), lost || why != nil
		}
	}
	if epoch < max(best.Stamp, kept.Stamp) {
		return fmt.Errorf("%s is of epoch %d, and a head knew %d: put the newest version of it back: %w",
			record.StateKey, epoch, max(best.Stamp, kept.Stamp), cas.ErrCorrupt)
	}
	next := &record.Head{Remote: m.o.Remote, Instance: best.Instance, Commit: best.Commit,
		Sequence: best.Sequence, Stamp: epoch, Clock: max(best.Clock, clockOf(t.head)), Time: best.Time}
	for _, c := range slices.Backward(m.commits[w]) { // of one version the later one
		if c.Sequence > best.Sequence || lost {
			lists = append(lists, c.Entries)
			next.Sequence = max(next.Sequence, c.Sequence)
		}
	}
	entries, err := m.choose(ctx, w, names.Union(w, lists...), gone)
	if err != nil {
		return err
	}
	same := best.Sequence > 0 && !lost &&
		reflect.DeepEqual(entries, names.Union(w, lists[:1+len(best.Tables)]...))
	if same {
		next.Tables, next.Tail = best.Tables, best.Tail
	} else if err := m.other(next, t.head, entries); err != nil {
		return err
	}
	return m.commit(ctx, w, next, t.version, Mended{w, was, same, next.Sequence, len(entries)})
}

func clockOf(h *record.Head) int64 {
	if h == nil {
		return 0
	}
	return h.Clock
}

// other makes a head one with a commit of its own, later than all that are known.
func (m *mending) other(next, was *record.Head, entries []record.Entry) error {
	next.Tail = entries
	next.Time = m.o.Now().UnixNano()
	if was != nil {
		next.Sequence = max(next.Sequence, was.Sequence)
	}
	next.Sequence++
	for i := range entries {
		next.Clock = max(next.Clock, entries[i].Newest())
	}
	return next.DrawCommit(m.o.Random)
}

// choose takes out of entries what may not be in a head: what needs what an epoch names, or what is not
// there.
func (m *mending) choose(ctx context.Context, w record.Writer, entries []record.Entry, gone survey.IDSet) (
	left []record.Entry, err error) {
	replaced, err := m.replaced(ctx, entries)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		if e.File == nil || len(e.File.Deps) == 0 || replaced[i] { // what is replaced needs nothing
			left = append(left, e)
			continue
		}
		missing := slices.IndexFunc(e.File.Deps, func(id record.ID) bool { return !m.has(id) })
		switch {
		case missing >= 0:
			m.rep.Lost = append(m.rep.Lost, Lost{e.Path, w, e.File.Deps[missing]})
		case slices.ContainsFunc(e.File.Deps, gone.Has):
			m.rep.Revive = append(m.rep.Revive, e)
		default:
			left = append(left, e)
			continue
		}
		if len(e.Over) > 0 { // what it covers stays covered
			left = append(left, record.Entry{Path: e.Path, Kind: record.KindTombstone, Origin: e.Origin,
				Version: e.Version, Over: e.Over})
		}
	}
	return left, nil
}

// replaced says of each entry whether one in another head replaces it.
func (m *mending) replaced(ctx context.Context, entries []record.Entry) ([]bool, error) {
	mark, err := m.heads.Mark(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]bool, len(entries))
	i := 0
	err = mark.Each(func(path string, held []*record.Entry) error {
		for ; i < len(entries) && record.ComparePaths(entries[i].Path, path) < 0; i++ {
		}
		for k := i; k < len(entries) && entries[k].Path == path; k++ {
			out[k] = names.Replaced(&entries[k], held)
		}
		return nil
	})
	return out, err
}

// epochs reads which is the newest, and what it and all before it name.
func (m *mending) epochs(ctx context.Context) (newest uint32, named survey.IDSet, err error) {
	p, _, err := bucket.Read(ctx, m.b, record.StateKey, record.MaxState, "")
	if errors.Is(err, bucket.ErrNotFound) {
		return 0, named, nil
	}
	if err != nil {
		return 0, named, err
	}
	s, err := record.DecodeState(p)
	if err != nil {
		return 0, named, err
	}
	named, err = m.heads.Named(ctx, s.Epoch)
	return s.Epoch, named, err
}

// commit puts the head.
func (m *mending) commit(ctx context.Context, w record.Writer, next *record.Head, version bucket.Version,
	done Mended) error {
	p, err := next.Encode(w)
	if errors.Is(err, cas.ErrTooLarge) || err == nil && len(p) > record.MaxTail && len(next.Tables) == 0 {
		if err = m.tables(ctx, w, next); err == nil {
			p, err = next.Encode(w)
		}
	}
	if err != nil {
		return err
	}
	cond := bucket.Cond{Version: version, Absent: version == ""}
	if _, err := m.b.Put(ctx, record.HeadKey(w), bucket.Bytes(p), cond); err != nil {
		return fmt.Errorf("it may have been changed meanwhile; repair again: %w", err)
	}
	m.rep.Mended = append(m.rep.Mended, done)
	return nil
}

// tables makes tables of the tail.
func (m *mending) tables(ctx context.Context, w record.Writer, h *record.Head) error {
	made, err := record.EncodeTables(w, m.o.Random, h.Tail)
	if err != nil {
		return err
	}
	var all []record.Table
	for _, t := range made {
		body := bucket.Bytes(t.Bytes)
		body.Immutable = true
		if _, err := m.b.Put(ctx, record.ClassTable.Key(t.ID), body, bucket.Cond{Absent: true}); err != nil {
			return err
		}
		all = append(all, t.Table)
	}
	h.Tail, h.Tables = nil, append(all, h.Tables...)
	return nil
}
