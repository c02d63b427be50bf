package ui

import (
	"context"
	"net/http"
	"strings"

	"ckptfs/fs/control"
)

// lineageBody is the page of where runs come from, or of where the models at a path do.
type lineageBody struct {
	Path string
	Part string
}

func (s *server) lineage(_ context.Context, r *http.Request) (*page, error) {
	p := r.URL.Query().Get("path")
	b := &lineageBody{Path: p, Part: "/part/lineage"}
	command := "ckptfs lineage " + s.full("runs")
	if p != "" {
		b.Part = withQuery("/part/ancestry", "path", p)
		command = "ckptfs lineage " + s.full(p)
	}
	return &page{Name: "lineage", Title: "Lineage", Here: "lineage", Body: b, Commands: []string{command},
		JSON: withJSON(b.Part)}, nil
}

func withJSON(u string) string {
	if strings.Contains(u, "?") {
		return u + "&json=1"
	}
	return u + "?json=1"
}

// ancestryBody is the chain of parents of models.
type ancestryBody struct {
	*control.Lineage
	Path     string
	Rows     []ancestryRow
	More     int
	Computed []*computed // files that are no models
}

type ancestryRow struct {
	Of       string
	Rows     []control.Ancestor // the nearest
	Far      []control.Ancestor // the others
	From     []control.Model    // merged
	Computed *computed          // what its tensors follow from; nil: from nothing that is known
}

// computed is what the tensors of a file follow from.
type computed struct {
	*control.Reproduction
	Text linked
}

const (
	// mostAncestry is how many models a page has the chains of.
	mostAncestry = 20
	// mostChain is how many ancestors of a model are shown; the others unfold.
	mostChain = 5
)

func (s *server) ancestryPart(ctx context.Context, r *http.Request) (*page, error) {
	p := r.URL.Query().Get("path")
	if r.URL.Query().Get("json") == "1" {
		return s.lineageJSON(ctx, p)
	}
	l, err := s.c.Lineage(ctx, p)
	if err != nil && control.AsError(err).Code == control.CodeNotFound {
		if _, there := s.c.Entry(ctx, p); there == nil { // it is there, and no model
			l, err = &control.Lineage{Path: p, Models: []control.ModelLineage{}}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return &page{Name: "ancestry", Body: ancestryBodyOf(p, l)}, nil
}

// lineageJSON is what ckptfs lineage --json prints.
func (s *server) lineageJSON(ctx context.Context, p string) (*page, error) {
	l, err := s.c.Lineage(ctx, p)
	return &page{Name: "ancestry", Data: l}, err
}

// ancestryBodyOf is what a page says of where the models at a path come from.
func ancestryBodyOf(p string, l *control.Lineage) *ancestryBody {
	b := &ancestryBody{Lineage: l, Path: p, More: max(len(l.Models)-mostAncestry, 0)}
	follow := map[string]*computed{}
	for i := range l.Reproduced {
		r := &l.Reproduced[i]
		follow[r.Path] = &computed{r, withLinks(r.What, sources(r)).shown()}
	}
	for _, m := range l.Models[:len(l.Models)-b.More] {
		row := ancestryRow{Of: m.Path, Rows: m.Chain, From: m.Merged, Computed: follow[m.Path]}
		if len(row.Rows) > mostChain+1 { // of a single one nothing is won
			row.Rows, row.Far = m.Chain[:mostChain], m.Chain[mostChain:]
		}
		b.Rows = append(b.Rows, row)
		delete(follow, m.Path)
	}
	for i := range l.Reproduced {
		if c := follow[l.Reproduced[i].Path]; c != nil && b.More == 0 {
			b.Computed = append(b.Computed, c)
		}
	}
	return b
}

// sources are the paths of what a file follows from.
func sources(r *control.Reproduction) []string {
	all := make([]string, len(r.From))
	for i := range r.From {
		all[i] = r.From[i].Path
	}
	return all
}
