package control

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// FollowOptions say which steps of a run are told of.
type FollowOptions struct {
	Run    string        // the path of its folder
	From   string        // a step: those behind it are told of, too, that are complete already
	All    bool          // all are that are complete already
	Settle time.Duration // how long the first step must not have changed
}

// NewStep is a step that became complete. The first one that is told has no name, but Before: the last of
// those that were passed over.
type NewStep struct {
	Run    string    `json:"run"`
	Step   string    `json:"step,omitempty"`
	Path   string    `json:"path"`             // of its folder, or of the file that it is
	Before string    `json:"before,omitempty"` // the complete step before it
	Patch  string    `json:"patch,omitempty"`  // the path of what changed from that one to it
	Time   time.Time `json:"time"`             // when a file of it was written last
}

// follow answers with the steps that become complete, until the caller goes.
func (h *Handler) follow(m Models) http.HandlerFunc {
	return parted(func(r *http.Request, part func(line) error, _ func(Progress)) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		q := r.URL.Query()
		settle, err := strconv.ParseInt(q.Get("settle"), 10, 64)
		if err != nil || settle < 0 {
			return nil, invalid("settle", q)
		}
		if h.mount.Mountpoint == "" {
			return nil, Invalid("the store is not mounted: nothing is saved in it meanwhile")
		}
		o := FollowOptions{Run: p, From: q.Get("from"), All: q.Get("all") == "1",
			Settle: time.Duration(settle) * time.Millisecond}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		if ending, ok := r.Context().Value(endingKey{}).(context.Context); ok {
			defer context.AfterFunc(ending, cancel)()
		}
		err = m.Follow(ctx, o, func(s NewStep) error { return part(line{Step: &s}) })
		if ctx.Err() != nil {
			return nil, &Error{Code: CodeUnavailable, Message: "the daemon ends"}
		}
		return nil, err
	})
}

// Follow is Models.Follow.
func (c *Client) Follow(ctx context.Context, o FollowOptions, tell func(NewStep) error) error {
	q := url.Values{"path": {o.Run}, "from": {o.From},
		"settle": {strconv.FormatInt(o.Settle.Milliseconds(), 10)}}
	if o.All {
		q.Set("all", "1")
	}
	_, err := followParts[struct{}](ctx, c, "watch", q, func(l *line) error {
		if l.Step == nil {
			return nil
		}
		return tell(*l.Step)
	}, nil)
	return err
}
