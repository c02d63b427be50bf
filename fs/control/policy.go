package control

import (
	"context"
	"net/http"
	"net/url"
)

// Policies answers about the rules of a store, and changes them.
type Policies interface {
	// Policy lists the rules; with count, what each of them covers.
	Policy(ctx context.Context, count bool) (*Policy, error)
	// ChangePolicy changes the rules, and lists them.
	ChangePolicy(ctx context.Context, c PolicyChange) (*Policy, error)
}

// Policy is the rules of a store.
type Policy struct {
	File    string       `json:"file"`              // absolute
	Problem string       `json:"problem,omitempty"` // why the file could not be read; then the rules are older
	Removed int          `json:"removed,omitempty"` // by a change
	Rules   []PolicyRule `json:"rules"`             // in the order of the file
}

// PolicyRule is one of them. Of the rules of one kind that cover a file the last one has it in its counts.
type PolicyRule struct {
	Line    int    `json:"line"`
	Pattern string `json:"pattern"`
	Rule    string `json:"rule"`
	*Covered
}

// Covered is what a rule is of.
type Covered struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"` // by the files' sizes
	// of these, the packed ones that have a local copy
	ResidentFiles int64 `json:"resident_files"`
	ResidentBytes int64 `json:"resident_bytes"`
}

// The values of PolicyChange.Do.
const (
	PolicyAdd    = "add"
	PolicyRemove = "remove"
	PolicyLoad   = "load" // reads the file again
)

// PolicyChange is a change of the rules.
type PolicyChange struct {
	Do      string
	Pattern string
	More    []string // patterns of further rules that are the same
	Rule    string   // the words behind the pattern; to remove: a kind, or "", which is every kind
}

// Ruled is what the rules of a store are about, as Status has it.
type Ruled struct {
	PolicyProblem string `json:"policy_problem,omitempty"` // why the policy could not be read
	// local copies that a rule holds. They are not counted in Status.ResidentBytes.
	PinnedFiles int   `json:"pinned_files"`
	PinnedBytes int64 `json:"pinned_bytes"`
}

func (h *Handler) policies(p Policies) {
	h.mux.HandleFunc("GET /v1/policy", plain(func(r *http.Request) (any, error) {
		return p.Policy(r.Context(), r.URL.Query().Get("count") == "1")
	}))
	h.mux.HandleFunc("POST /v1/policy", plain(func(r *http.Request) (any, error) {
		q := r.URL.Query()
		c := PolicyChange{Do: q.Get("do"), Pattern: q.Get("pattern"), Rule: q.Get("rule")}
		c.More = q["pattern"][min(1, len(q["pattern"])):]
		switch c.Do {
		case PolicyAdd, PolicyRemove, PolicyLoad:
		default:
			return nil, invalid("do", q)
		}
		out, err := p.ChangePolicy(r.Context(), c)
		if err == nil {
			h.did(r, "the policy was changed", "change", c.Do, "pattern", c.Pattern, "more", len(c.More), "rule", c.Rule)
		}
		return out, err
	}))
}

// Policy is Policies.Policy.
func (c *Client) Policy(ctx context.Context, count bool) (*Policy, error) {
	q := url.Values{}
	if count {
		q.Set("count", "1")
	}
	return ask[Policy](ctx, c, http.MethodGet, "policy", q)
}

// ChangePolicy is Policies.ChangePolicy.
func (c *Client) ChangePolicy(ctx context.Context, change PolicyChange) (*Policy, error) {
	return ask[Policy](ctx, c, http.MethodPost, "policy", url.Values{"do": {change.Do}, "rule": {change.Rule},
		"pattern": append([]string{change.Pattern}, change.More...)})
}

var _ Policies = (*Client)(nil)
