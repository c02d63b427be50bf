package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
)

// reading is what was read of heads and tables, of their entries no more than a mark needs.
type reading struct {
	b      bucket.Bucket
	remote record.ID
	heads  map[record.Writer]*head
	tables map[record.ID][]record.Entry
	date   time.Time // the latest of the engine
}

// head is one as it was read last.
type head struct {
	version bucket.Version
	tables  []record.ID
	tail    []record.Entry
}

// mark is what all heads together refer to.
type mark struct {
	heads   map[record.Writer]bucket.Version
	lists   [][]record.Entry // all that they and their tables hold
	entries int
	live    idSet
}

func newReading(b bucket.Bucket, remote record.ID) *reading {
	return &reading{b: b, remote: remote, heads: map[record.Writer]*head{},
		tables: map[record.ID][]record.Entry{}}
}

func (r *reading) dated(info bucket.Info) {
	if info.Date.After(r.date) {
		r.date = info.Date
	}
}

// mark reads all heads, of those that are as before no more than that.
func (r *reading) mark(ctx context.Context) (*mark, error) {
	writers, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	m := &mark{heads: map[record.Writer]bucket.Version{}}
	tables := map[record.ID]bool{}
	for _, w := range writers {
		h, err := r.head(ctx, w)
		if err != nil {
			return nil, err
		}
		if h == nil {
			continue
		}
		m.heads[w] = h.version
		m.lists = append(m.lists, h.tail)
		for _, id := range h.tables {
			tables[id] = true
			m.live.add(id)
			m.lists = append(m.lists, r.tables[id])
		}
	}
	if r.date.IsZero() {
		return nil, errors.New("the engine does not tell the date, or the remote has no head")
	}
	for id := range r.tables {
		if !tables[id] {
			delete(r.tables, id)
		}
	}
	m.add()
	return m, nil
}

// add adds what the entries refer to that nothing replaces.
func (m *mark) add() {
	for _, held := range names.Paths(m.lists...) {
		m.entries += len(held)
		for _, e := range names.Merge(held).Tips {
			if e.File != nil {
				m.live.add(e.File.Deps...)
			}
		}
	}
	m.live.sort()
}

// list lists all writers, @archive as the last: what is folded appears there before it leaves another head.
func (r *reading) list(ctx context.Context) ([]record.Writer, error) {
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
func (r *reading) head(ctx context.Context, w record.Writer) (*head, error) {
	known := r.heads[w]
	if known == nil {
		known = &head{}
	}
	var missing error // a table of the head of this version
	for {
		h, version, err := r.fetch(ctx, w, known.version)
		switch {
		case errors.Is(err, bucket.ErrUnchanged) && missing == nil:
			return known, nil
		case errors.Is(err, bucket.ErrUnchanged):
			return nil, missing
		case errors.Is(err, bucket.ErrNotFound):
			delete(r.heads, w)
			return nil, nil
		case err != nil:
			return nil, err
		}
		known = &head{version: version, tail: slim(h.Tail)}
		if missing = r.readTables(ctx, w, h, known); missing == nil {
			r.heads[w] = known
			return known, nil
		}
		if !errors.Is(missing, bucket.ErrNotFound) {
			return nil, missing
		}
	}
}

// fetch reads a head, unless it is of a version.
func (r *reading) fetch(ctx context.Context, w record.Writer, unless bucket.Version) (
	*record.Head, bucket.Version, error) {
	p, info, err := bucket.Read(ctx, r.b, record.HeadKey(w), record.MaxHead, unless)
	r.dated(info)
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
func (r *reading) readTables(ctx context.Context, w record.Writer, h *record.Head, known *head) error {
	for _, t := range h.Tables {
		known.tables = append(known.tables, t.ID)
		if _, read := r.tables[t.ID]; read {
			continue
		}
		p, _, err := bucket.Read(ctx, r.b, record.ClassTable.Key(t.ID), record.MaxObject, "")
		if err != nil {
			return err
		}
		entries, said, err := record.DecodeTable(w, t.ID, p)
		if err == nil && said != t {
			err = fmt.Errorf("table %s is not what the head of %s says: %w", t.ID, w, cas.ErrCorrupt)
		}
		if err != nil {
			return err
		}
		r.tables[t.ID] = slim(entries)
	}
	return nil
}

// slim keeps of entries what names asks for, and the objects that they need.
func slim(entries []record.Entry) []record.Entry {
	for i := range entries {
		e := &entries[i]
		e.Attrs, e.Metrics = nil, nil
		if f := e.File; f != nil {
			e.File = &record.File{Inline: f.Inline, Manifest: f.Manifest, Deps: f.Deps}
		}
	}
	return entries
}
