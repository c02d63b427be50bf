package control

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// MaxGraph bounds the bytes of MatchOptions.Graph.
const MaxGraph = 16 << 20

// MatchOptions say what to look for: a GRAPH.json (package ckptfs/index/graph), or the architecture of a
// stored model, which is not its own answer.
type MatchOptions struct {
	Graph      []byte
	Like       string // path of a model
	ExcludeRun string // a run whose models are passed over
	// AsKnown answers from what is known, without looking first what has changed; the tree is looked at
	// afterwards. A model that is gone is never the answer.
	AsKnown bool
	// Pin is the name in .ckptfs/query that has the answer from then on, as if the graph had been written
	// there: the model stays readable. "": none.
	Pin string
}

// MatchAnswer is the answer of Models.Match.
type MatchAnswer struct {
	GraphKind string `json:"graph_kind"` // only models of this kind are compared
	Vertices  int    `json:"vertices"`   // of the graph that was asked about
	Match     *Match `json:"match"`      // null: no model has a root in common with it
}

// Match is the best model to begin from.
type Match struct {
	Model
	Length  int              `json:"length"`  // vertices in common
	Exact   bool             `json:"exact"`   // no model has more in common; false: the search was cut short
	Pairs   [][2]string      `json:"pairs"`   // names of the vertices: the new one's, the stored one's
	Tensors []TransferTensor `json:"tensors"` // what a transfer reads
	Bytes   int64            `json:"bytes"`   // of Tensors
	// Pinned is where the model's tensors are readable, below the mount's root, as long as the query has its
	// name, even if the model is removed.
	Pinned string `json:"pinned,omitempty"`
}

// TransferTensor is a tensor of the stored model, and the name that it gets in the new one.
type TransferTensor struct {
	New    string `json:"new"`
	Stored string `json:"stored"`
	Bytes  int64  `json:"bytes"`
}

func (h *Handler) matching(m Models) {
	h.mux.HandleFunc("POST /v1/match", plain(func(r *http.Request) (any, error) {
		q := r.URL.Query()
		like, err := cleanPath(q.Get("like"))
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, MaxGraph+1))
		if err != nil {
			return nil, err
		}
		if len(body) > MaxGraph {
			return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("match: the graph is over %d bytes", MaxGraph), Errno: "EINVAL"}
		}
		return m.Match(r.Context(), MatchOptions{Graph: body, Like: like, ExcludeRun: q.Get("exclude_run"),
			AsKnown: q.Get("as_known") == "1", Pin: q.Get("pin")})
	}))
}

// Match is Models.Match.
func (c *Client) Match(ctx context.Context, o MatchOptions) (*MatchAnswer, error) {
	q := url.Values{"like": {o.Like}, "exclude_run": {o.ExcludeRun}}
	if o.AsKnown {
		q.Set("as_known", "1")
	}
	if o.Pin != "" {
		q.Set("pin", o.Pin)
	}
	body, err := c.post(ctx, "match", q, bytes.NewReader(o.Graph))
	if err != nil {
		return nil, err
	}
	return decode[MatchAnswer](ctx, body)
}
