package models

import (
	"context"

	"ckptfs/cas/remote/record"
	"ckptfs/index/ledger"
	"ckptfs/index/lineage"
)

// Published is what is said to other machines of the models at or below a path, by their paths. The
// architectures are in the store.
func (m *Models) Published(ctx context.Context, at string) (map[string]record.Told, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.settleLocked(ctx); err != nil {
		return nil, err
	}
	if err := m.recordLocked(); err != nil {
		return nil, err
	}
	all := map[string]record.Told{}
	for _, e := range m.book.At(at) {
		if e.RetiredAt == 0 {
			all[e.Path] = record.Told{Manifest: e.Manifest, Model: published(m.book, e)}
		}
	}
	return all, nil
}

// published is what is said of a model; nil where that is too much for an entry.
func published(book *ledger.Ledger, e *ledger.Entry) *record.Model {
	said := &record.Model{}
	if e.How != lineage.None {
		if said.Parent = publishedParent(book, e.Parent); said.Parent != (record.Parent{}) {
			said.How = e.How.String()
		}
	}
	for _, seq := range e.MergedFrom {
		if from := publishedParent(book, seq); from != (record.Parent{}) {
			said.Merged = append(said.Merged, from)
		}
	}
	for _, h := range e.Graph {
		said.Graph = append(said.Graph, record.Part{Hash: h})
	}
	said.Source = e.GraphFrom
	if said.Check() != nil {
		return nil
	}
	return said
}

// publishedParent names a model; the zero Parent: one that other machines cannot know.
func publishedParent(book *ledger.Ledger, seq uint64) record.Parent {
	e := book.Get(seq)
	if e == nil || record.CheckPath(e.Path) != nil {
		return record.Parent{}
	}
	return record.Parent{Path: e.Path, Manifest: e.Manifest}
}
