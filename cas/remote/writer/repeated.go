package writer

import (
	"context"
	"slices"

	"ckptfs/cas/remote/record"
)

// dropRepeated leaves out what the last commit did, if that may be asked for a second time: whoever asked
// for it has no answer, since that was lost, or came to a process that died. Done twice it would win against
// what others did meanwhile.
func (p *push) dropRepeated(ctx context.Context) error {
	if p.changes.Again {
		return nil
	}
	if p.w.last == nil {
		last, err := p.w.readLast(ctx)
		if err != nil {
			return err
		}
		p.w.last = last
	}
	p.entries = slices.DeleteFunc(p.entries, func(e record.Entry) bool {
		last, ok := p.w.last[e.Path]
		return ok && same(&e, &last)
	})
	return nil
}

// readLast finds the entries of the last commit: all in the tail, or, if that became a table, in new ones.
func (w *Writer) readLast(ctx context.Context) (map[string]record.Entry, error) {
	last := map[string]record.Entry{}
	note := func(e *record.Entry) {
		if e.Version == w.head.Clock {
			last[e.Path] = *e
		}
	}
	for i := range w.head.Tail {
		note(&w.head.Tail[i])
	}
	for i := 0; i < len(w.head.Tables) && len(w.head.Tail) == 0; i++ {
		before := len(last)
		if err := w.scan(ctx, &w.head.Tables[i], note); err != nil {
			return nil, err
		}
		if len(last) == before {
			break
		}
	}
	return last, nil
}

// told notes that the answer to the changes is about to be given: they are not asked for twice.
func (w *Writer) told(ch *Changes) {
	for i := range ch.Entries {
		delete(w.last, ch.Entries[i].Path)
	}
	for _, g := range ch.Gone {
		delete(w.last, g.Path)
	}
}

// same reports whether a and b say the same of their path, wherever it lies.
func same(a, b *record.Entry) bool {
	return a.Kind == b.Kind && a.Mode == b.Mode && a.MTime == b.MTime && a.Link == b.Link &&
		slices.Equal(a.Attrs, b.Attrs) && slices.Equal(a.Metrics, b.Metrics) &&
		slices.Equal(a.Over, b.Over) && (a.File == nil || sameFile(a.File, b.File))
}

func sameFile(a, b *record.File) bool {
	if a.Size != b.Size || a.Inline != b.Inline || a.Manifest != b.Manifest {
		return false
	}
	m, n := a.Model, b.Model
	if m == nil || n == nil {
		return m == n
	}
	return m.Parent == n.Parent && m.How == n.How && m.Source == n.Source &&
		slices.Equal(m.Merged, n.Merged) &&
		slices.EqualFunc(m.Graph, n.Graph, func(x, y record.Part) bool { return x.Hash == y.Hash })
}
