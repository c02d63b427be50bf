package control

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Model is a file with tensors, as it was committed once.
type Model struct {
	Seq       uint64    `json:"seq"` // its place in the order of commits
	Path      string    `json:"path"`
	Time      time.Time `json:"time"`
	Size      int64     `json:"size"`
	Tensors   int       `json:"tensors"`
	Retired   bool      `json:"retired"`
	RetiredAt time.Time `json:"retired_at,omitzero"`
	Parent    uint64    `json:"parent,omitempty"` // 0: none
	// where the parent was learnt: "none", "declared", "transfer", "previous step", "reproduced", "inferred"
	How        string   `json:"how"`
	MergedFrom []uint64 `json:"merged_from,omitempty"`
}

// Ancestor is a model in another's chain of parents, and what it owns of it.
type Ancestor struct {
	Model
	OwnedTensors int64 `json:"owned_tensors"`
	OwnedBytes   int64 `json:"owned_bytes"`
	// how many ancestors between this one and the one before in the chain are left out; they own nothing
	Skipped int `json:"skipped,omitempty"`
}

// ModelLineage is a model and its chain of parents, itself first. Of several models in one answer each has
// its parent, those that own something of it, and where its chain begins: an answer grows with the models
// that it is about, and not with their chains.
type ModelLineage struct {
	Model
	Chain  []Ancestor `json:"chain"`
	Merged []Model    `json:"merged,omitempty"` // of MergedFrom
}

// Lineage is the answer of Models.Lineage: the models at or below a path; the retired ones only if there is
// no other.
type Lineage struct {
	Path   string         `json:"path"`
	Models []ModelLineage `json:"models"`
	// files at or below the path, models or not, whose tensors follow from those of others
	Reproduced []Reproduction `json:"reproduced,omitempty"`
	// what is wrong with what the step says of its parent, or what is not packed yet
	Problem string `json:"problem,omitempty"`
}

// CommonAncestor is the answer of Models.Ancestor.
type CommonAncestor struct {
	A Model `json:"a"`
	B Model `json:"b"`
	// the most recent model that both come from; null when there is none
	Ancestor *Model `json:"ancestor"`
	Owner    *Model `json:"common_owner"` // the latest that owns tensors of both; null when there is none
}

// Ownership is the answer of Models.Owner.
type Ownership struct {
	Path   string `json:"path"`
	Tensor string `json:"tensor"`
	Owner  Model  `json:"owner"` // the model that first stored the tensor
}

// Retired is the answer of Models.Retire.
type Retired struct {
	Path   string  `json:"path"`
	Models []Model `json:"models"` // the tombstones
}

func (h *Handler) lineage(m Models) {
	h.mux.HandleFunc("GET /v1/lineage", plain(func(r *http.Request) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		return m.Lineage(r.Context(), p)
	}))
	h.mux.HandleFunc("GET /v1/ancestor", plain(func(r *http.Request) (any, error) {
		a, b, err := pathsOf(r)
		if err != nil {
			return nil, err
		}
		return m.Ancestor(r.Context(), a, b)
	}))
	h.mux.HandleFunc("GET /v1/owner", plain(func(r *http.Request) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		return m.Owner(r.Context(), p, r.URL.Query().Get("tensor"))
	}))
	h.mux.HandleFunc("POST /v1/retire", plain(func(r *http.Request) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		out, err := m.Retire(r.Context(), p)
		if err == nil {
			h.did(r, "a step was retired", "path", p, "models", len(out.Models))
		}
		return out, err
	}))
}

// Lineage is Models.Lineage.
func (c *Client) Lineage(ctx context.Context, path string) (*Lineage, error) {
	return ask[Lineage](ctx, c, http.MethodGet, "lineage", url.Values{"path": {path}})
}

// Ancestor is Models.Ancestor.
func (c *Client) Ancestor(ctx context.Context, a, b string) (*CommonAncestor, error) {
	return ask[CommonAncestor](ctx, c, http.MethodGet, "ancestor", url.Values{"a": {a}, "b": {b}})
}

// Owner is Models.Owner.
func (c *Client) Owner(ctx context.Context, path, tensor string) (*Ownership, error) {
	return ask[Ownership](ctx, c, http.MethodGet, "owner", url.Values{"path": {path}, "tensor": {tensor}})
}

// Retire is Models.Retire.
func (c *Client) Retire(ctx context.Context, path string) (*Retired, error) {
	return ask[Retired](ctx, c, http.MethodPost, "retire", url.Values{"path": {path}})
}
