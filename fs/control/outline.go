package control

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// OutlineOptions say which part of a file's tensors, or of a set's, is told.
type OutlineOptions struct {
	Path   string
	Prefix string // those whose names begin so are
	Exact  bool   // and are no longer: the first of them alone
	// Most is how many tensors are told one by one. Where more have the prefix, one level of names is: Names
	// of them at most.
	Most, Names int
}

// Outline is the answer of Tensors.Outline.
type Outline struct {
	File        *File   `json:"file"`  // without its tensors
	Count       int     `json:"count"` // tensors of the file; with Exact, up to the one that is told
	TensorBytes int64   `json:"tensor_bytes"`
	Below       int     `json:"below"`  // tensors that have the prefix
	Listed      []Owned `json:"listed"` // these, if they are not too many
	Level       []Level `json:"level"`  // else what their names begin with
	More        bool    `json:"more"`   // the level has more names
	Models      []Model `json:"models"` // that first stored any of the tensors
}

// Owned is a tensor, and which model first stored it: an index into Outline.Models, -1 where it is not known.
type Owned struct {
	Tensor
	Owner int `json:"owner"`
}

// Level is what names of tensors have behind a prefix, up to the first dot or slash behind which they differ,
// with it; or all of a name.
type Level struct {
	Name    string `json:"name"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
	Shared  int    `json:"shared"`           // tensors that other files hold, too
	Tensor  *Owned `json:"tensor,omitempty"` // of the name itself
}

// Owner is the model that first stored a tensor of o; nil where it is not known.
func (o *Outline) Owner(t *Owned) *Model {
	if t.Owner < 0 || t.Owner >= len(o.Models) {
		return nil
	}
	return &o.Models[t.Owner]
}

func (o *OutlineOptions) query() url.Values {
	q := url.Values{"path": {o.Path}, "prefix": {o.Prefix}, "most": {strconv.Itoa(o.Most)},
		"names": {strconv.Itoa(o.Names)}}
	if o.Exact {
		q.Set("exact", "1")
	}
	return q
}

func (h *Handler) outline(t Tensors) {
	h.mux.HandleFunc("GET /v1/outline", plain(func(r *http.Request) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		q := r.URL.Query()
		o := OutlineOptions{Path: p, Prefix: q.Get("prefix"), Exact: q.Get("exact") == "1"}
		for name, to := range map[string]*int{"most": &o.Most, "names": &o.Names} {
			if *to, err = strconv.Atoi(q.Get(name)); err != nil || *to < 0 {
				return nil, Invalid("%s: a number is expected, not %q", name, q.Get(name))
			}
		}
		return t.Outline(r.Context(), o)
	}))
}

// Outline is Tensors.Outline.
func (c *Client) Outline(ctx context.Context, o OutlineOptions) (*Outline, error) {
	return ask[Outline](ctx, c, http.MethodGet, "outline", o.query())
}
