// Package survey reads what the heads of a remote hold, all of it, and what its epochs name, for those who
// look at the whole remote: collectors and checkers.
//
// A Reading keeps what it read, so that a second look reads what has changed. Of a table it keeps the bytes,
// and of a head's tail no more than Mark.Each promises: a table of a million files is a fifth of what they
// take once decoded.
package survey

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
)

// Reading is what was read of heads and tables.
type Reading struct {
	Heads map[record.Writer]*Head // as they were read last
	Date  time.Time               // the latest of the engine
	// Bad is told of a head or a table that is missing or damaged, and is read around then; nil: that is an
	// error of Mark.
	Bad func(key string, w record.Writer, err error)

	b      bucket.Bucket
	remote record.ID
	tables map[record.ID]*Table
	say    func(doing string, n int64)
}

// Head is one as it was read last.
type Head struct {
	Version  bucket.Version
	Commit   record.ID
	Sequence int64
	Stamp    uint32
	Clock    int64
	Folded   bool
	Time     time.Time // of the last commit, by the writer's clock
	Entries  int64     // in the tail and all tables
	Tables   []record.ID
	Shards   []record.ID // of the index
	tail     []record.Entry
}

// Table is one whose directory was checked.
type Table struct {
	*record.Directory
	blocks []byte
	bad    func(error) // nil: a damaged block is an error
}

// Parts gives the entries of the table, each block checked.
func (t *Table) Parts() names.Parts {
	i := 0
	return func() ([]record.Entry, error) {
		for ; i < len(t.Blocks); i++ {
			b := t.Blocks[i]
			list, err := t.Block(i, t.blocks[b.Off:b.Off+b.Len])
			if err == nil || t.bad == nil {
				i++
				return list, err
			}
			t.bad(err)
		}
		return nil, nil
	}
}

// Each calls f with the entries of the table, part after part, each block checked.
func (t *Table) Each(f func(part []record.Entry)) error {
	next := t.Parts()
	for {
		part, err := next()
		if part == nil || err != nil {
			return err
		}
		f(part)
	}
}

// whole gives a list as one part.
func whole(list []record.Entry) names.Parts {
	return func() (part []record.Entry, err error) {
		part, list = list, nil
		return part, nil
	}
}

// Mark is what all heads together refer to.
type Mark struct {
	Heads   map[record.Writer]bucket.Version
	Tails   [][]record.Entry
	Entries int
	Live    IDSet // objects

	tables []*Table // all that the heads name
}

// New returns a Reading of nothing. say is told what is being done, and how much of it was.
func New(b bucket.Bucket, remote record.ID, say func(doing string, n int64)) *Reading {
	return &Reading{b: b, remote: remote, say: say, Heads: map[record.Writer]*Head{},
		tables: map[record.ID]*Table{}}
}

// Dated notes the engine's date, which an answer told.
func (r *Reading) Dated(info bucket.Info) {
	if info.Date.After(r.Date) {
		r.Date = info.Date
	}
}

// Mark reads all heads, of those that are as before no more than that.
func (r *Reading) Mark(ctx context.Context) (*Mark, error) {
	writers, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	m := &Mark{Heads: map[record.Writer]bucket.Version{}}
	tables := map[record.ID]bool{}
	for i, w := range writers {
		r.say("reading heads", int64(i))
		h, err := r.head(ctx, w)
		if err != nil && (r.Bad == nil || !damage(err)) {
			return nil, err
		}
		if err != nil {
			r.Bad(record.HeadKey(w), w, err)
		}
		if h == nil {
			continue
		}
		m.Heads[w] = h.Version
		m.Tails = append(m.Tails, h.tail)
		for _, id := range h.Tables {
			if !tables[id] && r.tables[id] != nil {
				m.tables = append(m.tables, r.tables[id])
			}
			tables[id] = true
			m.Live.Add(id)
		}
		m.Live.Add(h.Shards...)
	}
	if r.Date.IsZero() {
		return nil, errors.New("the engine does not tell the date, or the remote has no head")
	}
	for id := range r.tables {
		if !tables[id] {
			delete(r.tables, id)
		}
	}
	return m, m.add(ctx, r.say)
}

// Each calls f with all that is held of each path, ascending. Of entries it knows what package names asks
// for, and of files the size, the manifest, the plan and the deps.
func (m *Mark) Each(f func(path string, held []*record.Entry) error) error {
	var lists []names.Parts
	for _, tail := range m.Tails {
		lists = append(lists, whole(tail))
	}
	for _, t := range m.tables {
		lists = append(lists, t.Parts())
	}
	return names.Each(lists, f)
}

// add adds what the entries refer to that nothing replaces.
func (m *Mark) add(ctx context.Context, say func(string, int64)) error {
	err := m.Each(func(_ string, held []*record.Entry) error {
		if m.Entries += len(held); m.Entries%10_000 < len(held) {
			say("marking what names need", int64(m.Entries))
		}
		for _, e := range names.Merge(held).Tips {
			if e.File != nil {
				m.Live.Add(e.File.Deps...)
			}
		}
		return ctx.Err()
	})
	m.Live.Sort()
	return err
}

// damage reports whether an error is of what lies in the remote.
func damage(err error) bool {
	return errors.Is(err, cas.ErrCorrupt) || errors.Is(err, bucket.ErrNotFound)
}

// list lists all writers, @archive as the last: what is folded appears there before it leaves another head.
func (r *Reading) list(ctx context.Context) ([]record.Writer, error) {
	var writers []record.Writer
	archive := false
	for info, err := range r.b.List(ctx, record.Heads, "") {
		if err != nil {
			return nil, err
		}
		w, ok := record.ParseHead(info.Key)
		switch {
		case !ok:
			return nil, fmt.Errorf("%q is not known as a head: %w", info.Key, cas.ErrNewer)
		case w == record.ArchiveWriter:
			archive = true
		default:
			writers = append(writers, w)
		}
	}
	if archive {
		writers = append(writers, record.ArchiveWriter)
	}
	return writers, nil
}

// head reads a head and its tables; nil if there is none.
func (r *Reading) head(ctx context.Context, w record.Writer) (*Head, error) {
	known := r.Heads[w]
	if known == nil {
		known = &Head{}
	}
	var missing error // a table of the head of this version
	for {
		h, version, err := r.Fetch(ctx, w, known.Version)
		switch {
		case errors.Is(err, bucket.ErrUnchanged) && missing == nil:
			return known, nil
		case errors.Is(err, bucket.ErrUnchanged):
			return nil, missing
		case errors.Is(err, bucket.ErrNotFound):
			delete(r.Heads, w)
			return nil, nil
		case err != nil:
			return nil, err
		}
		known = &Head{Version: version, Commit: h.Commit, Sequence: h.Sequence, Stamp: h.Stamp,
			Clock: h.Clock, Folded: h.Folded, Time: time.Unix(0, h.Time),
			Entries: int64(len(h.Tail)), tail: slim(h.Tail)}
		for _, s := range h.Index.Shards {
			known.Shards = append(known.Shards, s.ID)
		}
		if missing = r.readTables(ctx, w, h, known); missing == nil {
			r.Heads[w] = known
			return known, nil
		}
		if !errors.Is(missing, bucket.ErrNotFound) {
			return nil, missing
		}
	}
}

// Fetch reads a head, unless it is of a version.
func (r *Reading) Fetch(ctx context.Context, w record.Writer, unless bucket.Version) (
	*record.Head, bucket.Version, error) {
	p, info, err := bucket.Read(ctx, r.b, record.HeadKey(w), record.MaxHead, unless)
	r.Dated(info)
	if err != nil {
		return nil, "", err
	}
	h, err := record.DecodeHead(w, p)
	if err == nil && len(p) > 0 && h.Remote != r.remote {
		err = fmt.Errorf("%s is of remote %s: %w", record.HeadKey(w), h.Remote, cas.ErrCorrupt)
	}
	return h, info.Version, err
}

// readTables reads those tables that are not read yet.
func (r *Reading) readTables(ctx context.Context, w record.Writer, h *record.Head, known *Head) error {
	for _, t := range h.Tables {
		known.Tables = append(known.Tables, t.ID)
		known.Entries += t.Entries
		if _, read := r.tables[t.ID]; read {
			continue
		}
		read, err := r.ReadTable(ctx, w, t)
		if err != nil && r.Bad != nil && damage(err) {
			r.Bad(record.ClassTable.Key(t.ID), w, err)
			continue
		}
		if err != nil {
			return err
		}
		if bad := r.Bad; bad != nil {
			read.bad = func(err error) { bad(record.ClassTable.Key(t.ID), w, err) }
		}
		r.tables[t.ID] = read
	}
	return nil
}

// ReadTable reads a table, and checks its directory. Blocks are checked as they are decoded.
func (r *Reading) ReadTable(ctx context.Context, w record.Writer, t record.Table) (*Table, error) {
	key := record.ClassTable.Key(t.ID)
	rd, info, err := r.b.Get(ctx, key, 0, bucket.All, "")
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	if info.Size != t.Len {
		return nil, fmt.Errorf("%s has %d bytes, and the head of %s says %d: %w", key, info.Size, w, t.Len,
			cas.ErrCorrupt)
	}
	read := &Table{blocks: make([]byte, t.Directory)}
	if _, err := io.ReadFull(rd, read.blocks); err != nil {
		return nil, err
	}
	var rest bytes.Buffer
	if _, err := rest.ReadFrom(rd); err != nil {
		return nil, err
	}
	read.Directory, err = t.Open(w, rest.Bytes())
	return read, err
}

// slim keeps of entries what names asks for, and the objects that they need.
func slim(entries []record.Entry) []record.Entry {
	for i := range entries {
		e := &entries[i]
		e.Attrs, e.Metrics = nil, nil
		if f := e.File; f != nil {
			e.File = &record.File{Size: f.Size, Inline: f.Inline, Manifest: f.Manifest, Plan: f.Plan,
				Deps: f.Deps}
		}
		if was := e.Removed; was != nil {
			e.Removed = &record.Removed{Time: was.Time, Entry: slim([]record.Entry{was.Entry})[0]}
		}
	}
	return entries
}
