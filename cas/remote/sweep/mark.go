package sweep

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

// reading is what was read of heads and tables. Of a table it keeps the bytes, and of a head's tail no more
// than a mark needs: a table of a million files is a fifth of what they take once decoded.
type reading struct {
	b      bucket.Bucket
	remote record.ID
	heads  map[record.Writer]*head
	tables map[record.ID]*table
	date   time.Time // the latest of the engine
	say    func(doing string, n int64)
}

// head is one as it was read last.
type head struct {
	version bucket.Version
	tables  []record.ID
	tail    []record.Entry
	time    time.Time // of the last commit, by the writer's clock
	idle    bool      // it has commits, and is not folded
	folded  bool
}

// table is one whose directory was checked.
type table struct {
	*record.Directory
	blocks []byte
}

// parts gives the entries of a table.
func (t *table) parts() names.Parts {
	i := 0
	return func() ([]record.Entry, error) {
		if i == len(t.Blocks) {
			return nil, nil
		}
		b := t.Blocks[i]
		i++
		return t.Block(i-1, t.blocks[b.Off:b.Off+b.Len])
	}
}

// whole gives a list as one part.
func whole(list []record.Entry) names.Parts {
	return func() (part []record.Entry, err error) {
		part, list = list, nil
		return part, nil
	}
}

// mark is what all heads together refer to.
type mark struct {
	heads   map[record.Writer]bucket.Version
	tails   [][]record.Entry
	tables  []*table // all that the heads name
	entries int
	live    idSet
}

func newReading(b bucket.Bucket, remote record.ID, say func(string, int64)) *reading {
	return &reading{b: b, remote: remote, say: say, heads: map[record.Writer]*head{},
		tables: map[record.ID]*table{}}
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
	for i, w := range writers {
		r.say("reading heads", int64(i))
		h, err := r.head(ctx, w)
		if err != nil {
			return nil, err
		}
		if h == nil {
			continue
		}
		m.heads[w] = h.version
		m.tails = append(m.tails, h.tail)
		for _, id := range h.tables {
			if !tables[id] {
				m.tables = append(m.tables, r.tables[id])
			}
			tables[id] = true
			m.live.add(id)
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
	return m, m.add(ctx, r.say)
}

// each calls f with all that is held of each path.
func (m *mark) each(f func(path string, held []*record.Entry) error) error {
	var lists []names.Parts
	for _, tail := range m.tails {
		lists = append(lists, whole(tail))
	}
	for _, t := range m.tables {
		lists = append(lists, t.parts())
	}
	return names.Each(lists, f)
}

// add adds what the entries refer to that nothing replaces.
func (m *mark) add(ctx context.Context, say func(string, int64)) error {
	err := m.each(func(_ string, held []*record.Entry) error {
		if m.entries += len(held); m.entries%10_000 < len(held) {
			say("marking what names need", int64(m.entries))
		}
		for _, e := range names.Merge(held).Tips {
			if e.File != nil {
				m.live.add(e.File.Deps...)
			}
		}
		return ctx.Err()
	})
	m.live.sort()
	return err
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
		known = &head{version: version, tail: slim(h.Tail), time: time.Unix(0, h.Time),
			idle: h.Sequence > 0 && !h.Folded, folded: h.Folded}
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
		read, err := r.readTable(ctx, w, t)
		if err != nil {
			return err
		}
		r.tables[t.ID] = read
	}
	return nil
}

// readTable reads a table, and checks its directory. Blocks are checked as they are decoded.
func (r *reading) readTable(ctx context.Context, w record.Writer, t record.Table) (*table, error) {
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
	read := &table{blocks: make([]byte, t.Directory)}
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
			e.File = &record.File{Inline: f.Inline, Manifest: f.Manifest, Deps: f.Deps}
		}
		if was := e.Removed; was != nil {
			e.Removed = &record.Removed{Time: was.Time, Entry: slim([]record.Entry{was.Entry})[0]}
		}
	}
	return entries
}
