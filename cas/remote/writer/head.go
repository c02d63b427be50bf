package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// next is the head of the commit; false: it would be as it is.
func (p *push) next(epoch uint32) (*record.Head, bool) {
	head := p.w.head
	tail, changed := p.w.withoutGone(head.Tail, p.changes.Gone, head.Tables)
	if len(p.entries) == 0 && !changed {
		return nil, false
	}
	return &record.Head{
		Remote: p.w.Remote, Instance: p.w.id.Instance, Commit: p.id, Sequence: head.Sequence + 1,
		Stamp: epoch, Clock: p.clock, Time: p.w.Now().UnixNano(), Tables: slices.Clone(head.Tables),
		Tail: merged(p.w.id.Writer, p.entries, tail),
	}, true
}

// merged is a list of entries, of which those of a path in an earlier list win.
func merged(own record.Writer, lists ...[]record.Entry) []record.Entry {
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, func(a, b record.Entry) int { return a.Compare(&b, own) })
	return slices.CompactFunc(all, func(a, b record.Entry) bool { return a.Compare(&b, own) == 0 })
}

// withoutGone takes entries out that nothing needs. An entry of the same path in one of the older tables
// would come to light; where there may be one, a tombstone stays. So it does of what is over something. It
// has the version of the entry: who replaced that has replaced it, too.
func (w *Writer) withoutGone(entries []record.Entry, gone []Gone, older []record.Table) (
	left []record.Entry, changed bool) {
	going := map[string]Gone{}
	for _, g := range gone {
		going[g.Path] = g
	}
	for _, e := range entries {
		g := going[e.Path]
		switch hidden := slices.ContainsFunc(older, func(t record.Table) bool { return spans(&t, e.Path) }); {
		case g.Version != e.Version || e.Origin != w.id.Writer:
		case (g.Bare || len(e.Over) == 0) && !hidden:
			changed = true
			continue
		case e.Kind != record.KindTombstone:
			e = record.Entry{Path: e.Path, Kind: record.KindTombstone, Origin: e.Origin, Version: e.Version,
				Over: e.Over}
			changed = true
		}
		left = append(left, e)
	}
	return left, changed
}

// spans reports whether a table may have a path.
func spans(t *record.Table, path string) bool {
	return record.ComparePaths(t.First, path) <= 0 && record.ComparePaths(path, t.Last) <= 0
}

// encode makes the bytes of the head, its tail a table if it is too long.
func (p *push) encode(ctx context.Context, next *record.Head) ([]byte, error) {
	own := p.w.id.Writer
	b, err := next.Encode(own)
	if err != nil && !errors.Is(err, cas.ErrTooLarge) {
		return nil, err
	}
	if err == nil {
		rest := *next
		rest.Tail = nil
		short, err := rest.Encode(own)
		if err != nil || len(b)-len(short) <= record.MaxTail {
			return b, err
		}
	}
	if err := p.flush(ctx, next); err != nil {
		return nil, err
	}
	return next.Encode(own)
}

// commit makes the head that of the writer.
func (p *push) commit(ctx context.Context, next *record.Head, body []byte) error {
	w := p.w
	id := w.id
	id.Pending = append(slices.Clone(id.Pending), next.Commit)
	if err := w.setIdentity(id); err != nil {
		return err
	}
	for range attempts {
		version, err := w.Bucket.Put(ctx, record.HeadKey(w.id.Writer), bucket.Bytes(body),
			bucket.Cond{Version: w.version})
		if err == nil {
			return p.committed(ctx, next, version)
		}
		if !unsettled(err) && !errors.Is(err, bucket.ErrNotFound) {
			return w.refused(next, err)
		}
		if done, err := p.settle(ctx, next, err); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("push of %s: %w", w.id.Writer, ErrUnsettled)
}

// refused forgets a commit that was not made.
func (w *Writer) refused(next *record.Head, err error) error {
	id := w.id
	id.Pending = slices.DeleteFunc(slices.Clone(id.Pending), func(c record.ID) bool {
		return c == next.Commit
	})
	return errors.Join(fmt.Errorf("push of %s: %w", id.Writer, err), w.setIdentity(id))
}

// settle finds out what became of a commit that was not acknowledged. Neither done nor an error: the head is
// as it was, and may be put again.
func (p *push) settle(ctx context.Context, next *record.Head, why error) (done bool, err error) {
	w := p.w
	h, version, err := w.getHead(ctx, w.id.Writer)
	switch {
	case errors.Is(err, bucket.ErrNotFound):
		return false, w.registerAgain(ctx, w.id.Writer,
			fmt.Sprintf("%s is gone", record.HeadKey(w.id.Writer)))
	case err != nil:
		return false, fmt.Errorf("push of %s: %w: %w: %w", w.id.Writer, why, err, ErrUnsettled)
	case h.Commit == next.Commit:
		return true, p.committed(ctx, h, version)
	case version == w.version:
		return false, nil
	}
	// It was stamped, or one that was sent before was made. Then none can be made any more that was sent.
	if err := w.recognize(ctx, h); err != nil {
		return false, err
	}
	if err := w.acknowledge(h); err != nil {
		return false, err
	}
	return false, fmt.Errorf("%w: %w", errAgain, why)
}

// committed notes that h, at version, is the head, and tells others.
func (p *push) committed(ctx context.Context, h *record.Head, version bucket.Version) error {
	w := p.w
	if err := w.acknowledge(h); err != nil {
		return fmt.Errorf("commit %d of %s was made: %w", h.Sequence, w.id.Writer, err)
	}
	w.head, w.version = h, version
	p.result.Commit, p.result.Sequence, p.result.Version = h.Commit, h.Sequence, p.clock
	if hint, err := record.DrawID(w.Random); err == nil {
		// Who does not see it finds the commit when it looks the next time.
		w.Bucket.Put(ctx, record.HintKey, bucket.Bytes(hint[:]), bucket.Cond{})
	}
	return nil
}
