package control

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Origins is where the runs come from: the answer of Models.Origins. Tensors of the first files of each run
// are looked at, for what these are computed from; what was looked at once is known from then on.
type Origins struct {
	// Models are, of each run, the first one and the last one, and those that come from a model of another
	// run or are merged. A chain has the model and its parent.
	Models     []ModelLineage `json:"models"`
	Reproduced []Reproduction `json:"reproduced"`
	Files      int            `json:"files"` // that are to be looked at
	Left       int            `json:"left"`  // of these: there was no time for them
}

func (h *Handler) origins(m Models) {
	h.mux.HandleFunc("GET /v1/origins", plain(func(r *http.Request) (any, error) {
		within, err := time.ParseDuration(r.URL.Query().Get("within"))
		if err != nil {
			return nil, Invalid("within: %v", err)
		}
		return m.Origins(r.Context(), within)
	}))
}

// Origins is Models.Origins.
func (c *Client) Origins(ctx context.Context, within time.Duration) (*Origins, error) {
	return ask[Origins](ctx, c, http.MethodGet, "origins", url.Values{"within": {within.String()}})
}
