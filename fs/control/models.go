package control

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Models is what a volume knows of runs and models, besides files. Paths are as Volume has them.
type Models interface {
	// Runs lists the directories below runs/.
	Runs(ctx context.Context) (*RunList, error)
	// Log lists the steps of a run, in their order.
	Log(ctx context.Context, run string, steps Listed) (*RunLog, error)
	// Steps is Log without what each step added to those before it: no manifest is read.
	Steps(ctx context.Context, run string) (*RunLog, error)
	// Best is the complete step of a run with the least (mode "min") or greatest ("max") value of a metric.
	Best(ctx context.Context, run, metric, mode string) (*BestStep, error)
	// Follow tells of each step of a run that becomes complete, until tell or ctx ends it.
	Follow(ctx context.Context, o FollowOptions, tell func(NewStep) error) error
	// Diff compares the tensors of two files, steps or runs. parts and progress may be nil.
	Diff(ctx context.Context, o DiffOptions, parts Differences, progress func(Progress)) (*Diff, error)
	// Find lists the tensors that hold some content.
	Find(ctx context.Context, o FindOptions) (*Found, error)
	// Lineage tells which models those at or below a path come from.
	Lineage(ctx context.Context, path string) (*Lineage, error)
	// Origins tells where all runs come from. So long it looks for what tensors are computed from.
	Origins(ctx context.Context, within time.Duration) (*Origins, error)
	// Ancestor finds the most recent model that both of two come from.
	Ancestor(ctx context.Context, a, b string) (*CommonAncestor, error)
	// Owner tells which model first stored a tensor of a file.
	Owner(ctx context.Context, path, tensor string) (*Ownership, error)
	// Retire records durably that what was at a path, and was removed, is retired.
	Retire(ctx context.Context, path string) (*Retired, error)
	// Match finds the stored model with the longest prefix in common with an architecture.
	Match(ctx context.Context, o MatchOptions) (*MatchAnswer, error)
}

// RunList is the answer of Runs.
type RunList struct {
	Runs []Run `json:"runs"`
}

// Run is one directory below runs/.
type Run struct {
	Run          string    `json:"run"`                  // its name
	Exact        Name      `json:"exact_name,omitempty"` // likewise, if it is not UTF-8
	Steps        int       `json:"steps"`                // the directories in it that hold files
	Complete     int       `json:"complete"`
	Torn         int       `json:"torn"`
	Writing      int       `json:"writing"`
	LogicalBytes int64     `json:"logical_bytes"` // of the files in its steps
	Last         time.Time `json:"last"`          // when a file of them was written last
	Metrics      []string  `json:"metrics"`       // that any complete step has
}

// The values of Step.State.
const (
	StepComplete = "complete" // all its files were closed
	StepWriting  = "writing"  // a file of it is open for writing, or it has a name that says so
	StepTorn     = "torn"     // a file of it was open for writing when a daemon or its program was killed
	StepArriving = "arriving" // it names files that are not there: other ranks have not published them yet
)

// Unfinished reports whether more of the step may come.
func (s *Step) Unfinished() bool { return s.State == StepWriting || s.State == StepArriving }

// RunLog is the answer of Log.
type RunLog struct {
	Run   string `json:"run"`
	Steps []Step `json:"steps"`
	// the step that the run can be gone on from; "": there is none, or it was not asked for (Log)
	Last string `json:"last,omitempty"`
}

// Step is one directory of a run.
//
//	LogicalBytes  sum of the sizes of its files
//	NewBytes      raw bytes of the distinct chunks that no step before it has
//	PlainBytes    the part of LogicalBytes that is not packed: nothing is known of what it shares
type Step struct {
	Step         string            `json:"step"`
	Exact        Name              `json:"exact_name,omitempty"` // of the step, if it is not UTF-8
	State        string            `json:"state"`
	Time         time.Time         `json:"time"` // when a file of it was written last
	Files        int               `json:"files"`
	LogicalBytes int64             `json:"logical_bytes"`
	NewBytes     int64             `json:"new_bytes"`
	StoredBytes  int64             `json:"stored_bytes"` // what the records take that no step before it has
	PlainBytes   int64             `json:"plain_bytes"`
	SharedWith   string            `json:"shared_with,omitempty"`  // the step before it that has most of its bytes
	SharedBytes  int64             `json:"shared_bytes,omitempty"` // how many
	Metrics      map[string]Number `json:"metrics"`
	Problem      string            `json:"problem,omitempty"` // why metrics are missing
}

// UnmarshalJSON reads a run, with its name as it is: in JSON Run is one in which U+FFFD stands for bytes that
// are not UTF-8.
func (r *Run) UnmarshalJSON(p []byte) error {
	type plain Run
	err := json.Unmarshal(p, (*plain)(r))
	if r.Exact != "" {
		r.Run = string(r.Exact)
	}
	return err
}

// UnmarshalJSON reads a step, with its name as it is, likewise.
func (s *Step) UnmarshalJSON(p []byte) error {
	type plain Step
	err := json.Unmarshal(p, (*plain)(s))
	if s.Exact != "" {
		s.Step = string(s.Exact)
	}
	return err
}

// BestStep is the answer of Best.
type BestStep struct {
	Run    string `json:"run"`
	Step   string `json:"step"`
	Exact  Name   `json:"exact_name,omitempty"` // of the step, if it is not UTF-8
	Path   string `json:"path"`                 // relative to the mount's root
	Metric string `json:"metric"`
	Mode   string `json:"mode"`
	Value  Number `json:"value"`
}

// Number is a float64 in JSON. What JSON has no number for is a string: "nan", "inf", "-inf".
type Number float64

func (n Number) String() string {
	switch f := float64(n); {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	default:
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
}

// MarshalJSON writes n.
func (n Number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return json.Marshal(n.String())
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (n *Number) UnmarshalJSON(p []byte) error {
	if string(p) == "null" {
		return nil
	}
	f, err := strconv.ParseFloat(string(bytes.Trim(p, `"`)), 64)
	*n = Number(f)
	return err
}

// models adds what Models answers.
func (h *Handler) models(m Models) {
	h.comparing(m)
	h.lineage(m)
	h.origins(m)
	h.matching(m)
	h.mux.HandleFunc("GET /v1/runs", plain(func(r *http.Request) (any, error) { return m.Runs(r.Context()) }))
	h.mux.HandleFunc("GET /v1/log", h.log(m))
	h.mux.HandleFunc("GET /v1/steps", plain(func(r *http.Request) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		return m.Steps(r.Context(), p)
	}))
	h.mux.HandleFunc("POST /v1/watch", h.follow(m))
	h.mux.HandleFunc("GET /v1/best", plain(func(r *http.Request) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		q := r.URL.Query()
		return m.Best(r.Context(), p, q.Get("metric"), q.Get("mode"))
	}))
}

// Runs is Models.Runs.
func (c *Client) Runs(ctx context.Context) (*RunList, error) {
	return ask[RunList](ctx, c, http.MethodGet, "runs", nil)
}

// Steps is Models.Steps.
func (c *Client) Steps(ctx context.Context, run string) (*RunLog, error) {
	return ask[RunLog](ctx, c, http.MethodGet, "steps", url.Values{"path": {run}})
}

// Best is Models.Best.
func (c *Client) Best(ctx context.Context, run, metric, mode string) (*BestStep, error) {
	return ask[BestStep](ctx, c, http.MethodGet, "best",
		url.Values{"path": {run}, "metric": {metric}, "mode": {mode}})
}

var _ Models = (*Client)(nil)
