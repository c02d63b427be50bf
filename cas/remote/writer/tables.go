package writer

import (
	"cmp"
	"context"
	"io"
	"slices"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// flush makes a table of the tail, and of newer tables that are of like size.
func (p *push) flush(ctx context.Context, next *record.Head) error {
	tables, err := p.w.tablesOf(next.Tail)
	if err != nil {
		return err
	}
	entries := next.Tail
	for len(tables) == 1 {
		n := tables[0].Mergeable(next.Tables)
		if n == 0 {
			break
		}
		if entries, err = p.w.read(ctx, entries, next.Tables[:n]); err != nil {
			return err
		}
		next.Tables = next.Tables[n:]
		entries, _ = p.w.withoutGone(entries, p.changes.Gone, next.Tables)
		if len(entries) == 0 {
			tables = nil
			break
		}
		if tables, err = p.w.tablesOf(entries); err != nil {
			return err
		}
	}
	for _, t := range slices.Backward(tables) {
		if err := p.w.putNew(ctx, record.ClassTable.Key(t.ID), t.body()); err != nil {
			return err
		}
		p.count(t.Len)
		p.w.covers[t.ID] = t.covers
		next.Tables = slices.Insert(next.Tables, 0, t.Table)
	}
	next.Tail = nil
	return nil
}

// newTable is a table that is to be put.
type newTable struct {
	record.NewTable
	covers map[string][]record.Replaced
}

func (t *newTable) body() bucket.Body {
	b := bucket.Bytes(t.Bytes)
	b.Immutable = true
	return b
}

// tablesOf makes a table of entries, or several when they are too many.
func (w *Writer) tablesOf(entries []record.Entry) ([]*newTable, error) {
	made, err := record.EncodeTables(w.id.Writer, w.Random, entries)
	if err != nil {
		return nil, err
	}
	tables := make([]*newTable, len(made))
	for i, t := range made {
		tables[i] = &newTable{NewTable: t, covers: map[string][]record.Replaced{}}
		for k := range entries[:t.Entries] {
			note(tables[i].covers, &entries[k])
		}
		entries = entries[t.Entries:]
	}
	return tables, nil
}

func note(covers map[string][]record.Replaced, e *record.Entry) {
	if len(e.Over) > 0 {
		covers[e.Path] = e.Over
	}
}

// read merges entries with those of older tables, newest first.
func (w *Writer) read(ctx context.Context, entries []record.Entry, tables []record.Table) (
	[]record.Entry, error) {
	lists := [][]record.Entry{entries}
	for i := range tables {
		var list []record.Entry
		if err := w.scan(ctx, &tables[i], func(e *record.Entry) { list = append(list, *e) }); err != nil {
			return nil, err
		}
		lists = append(lists, list)
	}
	return merged(w.id.Writer, lists...), nil
}

// readCovers finds what entries in tables are over, of each table once.
func (w *Writer) readCovers(ctx context.Context) error {
	known := map[record.ID]map[string][]record.Replaced{}
	for i := range w.head.Tables {
		t := &w.head.Tables[i]
		covers, ok := w.covers[t.ID]
		if !ok {
			covers = map[string][]record.Replaced{}
			if err := w.scan(ctx, t, func(e *record.Entry) { note(covers, e) }); err != nil {
				return err
			}
		}
		known[t.ID] = covers
	}
	w.covers = known
	return nil
}

// scan calls f with each entry of an own table, in order. It keeps a block in memory, and the directory.
func (w *Writer) scan(ctx context.Context, t *record.Table, f func(*record.Entry)) error {
	key := record.ClassTable.Key(t.ID)
	p, err := w.bytes(ctx, key, t.Directory, t.Len-t.Directory)
	if err != nil {
		return err
	}
	d, err := t.Open(w.id.Writer, p)
	if err != nil {
		return err
	}
	r, _, err := w.Bucket.Get(ctx, key, 0, t.Directory, "")
	if err != nil {
		return err
	}
	defer r.Close()
	var buf []byte
	for i := range d.Blocks {
		n := int(d.Blocks[i].Len)
		buf = slices.Grow(buf[:0], n)[:n]
		if _, err := io.ReadFull(r, buf); err != nil {
			return cmp.Or(ctx.Err(), err)
		}
		entries, err := d.Block(i, buf)
		if err != nil {
			return err
		}
		for k := range entries {
			f(&entries[k])
		}
	}
	return nil
}

// bytes reads a range of an object.
func (w *Writer) bytes(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if n < 0 || n > record.MaxObject {
		return nil, corrupt("%s: %d bytes at %d", key, n, off)
	}
	r, _, err := w.Bucket.Get(ctx, key, off, n, "")
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p := make([]byte, n)
	_, err = io.ReadFull(r, p)
	return p, err
}
