package control

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Remote is what a volume answers about the remote that its store is joined to.
type Remote interface {
	// Push publishes what is complete at or below a path, and returns when the remote has it.
	Push(ctx context.Context, path string, o PushOptions, report func(Progress)) (*Pushed, error)
	// Join uses the remote that the store was joined to since it was opened.
	Join(ctx context.Context) error
	// Fetch reads what others published since.
	Fetch(ctx context.Context) (*Fetched, error)
	// Pull makes the names at or below a path that others published, with their bytes.
	Pull(ctx context.Context, path string, report func(Progress)) (*Pulled, error)
	// Drop leaves to the remote what it has of the files at or below a path.
	Drop(ctx context.Context, path string, report func(Progress)) (*Dropped, error)
	// Conflicts lists the names of which the remote has several versions.
	Conflicts(ctx context.Context, path string) (*Conflicts, error)
	// Deleted lists the names at or below a path that were deleted and may be brought back.
	Deleted(ctx context.Context, path string) (*Deletions, error)
	// Undelete brings them back.
	Undelete(ctx context.Context, path string, report func(Progress)) (*Undeleted, error)
	// Export publishes what lies at a path once more, as a run of a name that a mirror shows.
	Export(ctx context.Context, name, path string, serving bool) (*Exported, error)
	// RepairRemote makes heads of the remote again; those of writers from commit records alone.
	RepairRemote(ctx context.Context, writers []string, report func(Progress)) (*RemoteRepaired, error)
}

// Exported is what Export did.
type Exported struct {
	Name    string `json:"name"`
	Names   int    `json:"names"`
	Removed int    `json:"removed"` // names that were exported before
	Objects int    `json:"objects"` // that were put
	Bytes   int64  `json:"bytes"`   // of these
	Skipped []Skip `json:"skipped"`
}

// RemoteRepaired is what RepairRemote did.
type RemoteRepaired struct {
	Heads   []MendedHead    `json:"heads"`
	Revived int             `json:"revived"` // names that this store published again
	Lost    []Skip          `json:"lost"`
	Unknown []UnknownWriter `json:"unknown"`
	Damaged []string        `json:"damaged"` // keys of objects whose commit records could not be read
}

// MendedHead is a head that was made again.
type MendedHead struct {
	Writer string `json:"writer"`
	Was    string `json:"was"`  // what was wrong with it
	Same   bool   `json:"same"` // it is the one that was read last; else its writer registers again
	Names  int    `json:"names"`
	Commit int64  `json:"commit"` // its number
}

// UnknownWriter has no head, and this store never saw one; there are commit records of it.
type UnknownWriter struct {
	Writer  string    `json:"writer"`
	Commits int       `json:"commits"`
	Last    time.Time `json:"last"`
}

// Deletions are names that were deleted.
type Deletions struct {
	Names []Deletion `json:"names"`
}

// Deletion is a name that was deleted.
type Deletion struct {
	Path     string    `json:"path"`
	Writer   string    `json:"writer"`        // who deleted it
	Time     time.Time `json:"time,omitzero"` // when, by its clock
	Modified time.Time `json:"modified"`
	Size     int64     `json:"size"`
}

// Undeleted is what Undelete did.
type Undeleted struct {
	Names   int    `json:"names"`
	Bytes   int64  `json:"bytes"`
	Skipped []Skip `json:"skipped"` // what is gone, and who deleted it when
}

// PushOptions are how something is published.
type PushOptions struct {
	Newest     bool // the newest complete step first, before what is published in the background
	NoConflict bool // nothing, if a name would have several versions then
}

func (o PushOptions) query(path string) url.Values {
	q := url.Values{"path": {path}}
	if o.Newest {
		q.Set("newest", "1")
	}
	if o.NoConflict {
		q.Set("no_conflict", "1")
	}
	return q
}

func pushOptions(q url.Values) PushOptions {
	return PushOptions{Newest: q.Get("newest") == "1", NoConflict: q.Get("no_conflict") == "1"}
}

// Pushed is what Push did.
type Pushed struct {
	Remote  string `json:"remote"` // URL
	Writer  string `json:"writer"` // under which the store publishes
	Names   int    `json:"names"`  // that were published; files, links, folders
	Removed int    `json:"removed"`
	Objects int    `json:"objects"` // that were put
	Bytes   int64  `json:"bytes"`   // of these
	Skipped []Skip `json:"skipped"` // what was not published, and why
}

// Fetched is what the remote has, as far as Fetch looked.
type Fetched struct {
	Remote   string    `json:"remote"`
	Changed  bool      `json:"changed"` // since the last look
	Writers  []string  `json:"writers"`
	Problems []BadHead `json:"problems"`
}

// BadHead is a head that is not as it should be.
type BadHead struct {
	Key  string `json:"key"` // of the object
	What string `json:"what"`
}

// Pulled is what Pull did.
type Pulled struct {
	Files   int    `json:"files"`
	Bytes   int64  `json:"bytes"`   // of these
	Fetched int64  `json:"fetched"` // bytes that came from the remote
	Skipped []Skip `json:"skipped"` // what stays as it is here, and why
}

// Dropped is what Drop did.
type Dropped struct {
	Files   int    `json:"files"`   // that are read from the remote from now on
	Bytes   int64  `json:"bytes"`   // of these
	Skipped []Skip `json:"skipped"` // what stays as it is here, and why
}

// Conflicts are names of which the remote has several versions, none of which replaces the others knowingly.
type Conflicts struct {
	Names []Conflict `json:"names"`
}

// Conflict is a name with several versions.
type Conflict struct {
	Path     string    `json:"path"`
	Versions []Version `json:"versions"` // the first has the name
}

// Version is one of a name's.
type Version struct {
	Writer string    `json:"writer"` // "" of a folder that is there by what is in it
	Time   time.Time `json:"time"`   // of its modification
	Size   int64     `json:"size"`
	Folder bool      `json:"folder,omitempty"`
}

// RemoteStatus is how far a store and its remote are.
type RemoteStatus struct {
	URL         string    `json:"url"`
	Writer      string    `json:"writer"`
	LastCommit  time.Time `json:"last_commit,omitzero"`
	LastContact time.Time `json:"last_contact,omitzero"`
	Pushing     string    `json:"pushing,omitempty"`      // the path that is being published
	Waiting     []Skip    `json:"waiting"`                // what is not published yet, and why
	MoreWaiting int       `json:"more_waiting,omitempty"` // names besides
	Problem     string    `json:"problem,omitempty"`      // why nothing is published now
	Offline     *Offline  `json:"offline,omitempty"`      // nil: it is reached, as far as is known
	ReadOnly    bool      `json:"read_only,omitempty"`    // nothing can be published to it
	// Conflicts is of how many names the remote has several versions; nil: that could not be counted in a
	// moment.
	Conflicts *int `json:"conflicts,omitempty"`
	// Manual: what is complete is published when a command says so, and not before.
	Manual      bool         `json:"manual,omitempty"`
	Unpublished *Unpublished `json:"unpublished,omitempty"` // nil: it could not be counted in a moment
}

// Offline is that a remote is not reached. Names are as they were seen last, and what is saved is published
// later.
type Offline struct {
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
	Do    string    `json:"do"` // what may help
}

// Unpublished is what a store has that its remote has not.
type Unpublished struct {
	Files   int   `json:"files"`
	Bytes   int64 `json:"bytes"`   // of these
	Removed int   `json:"removed"` // names
}

func (h *Handler) remote(v Remote) {
	h.mux.HandleFunc("POST /v1/push", stream(func(r *http.Request, progress func(Progress)) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		return v.Push(r.Context(), p, pushOptions(r.URL.Query()), progress)
	}))
	h.mux.HandleFunc("POST /v1/pull", stream(func(r *http.Request, progress func(Progress)) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		return v.Pull(r.Context(), p, progress)
	}))
	h.mux.HandleFunc("POST /v1/drop", stream(func(r *http.Request, progress func(Progress)) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		return v.Drop(r.Context(), p, progress)
	}))
	h.mux.HandleFunc("POST /v1/join", plain(func(r *http.Request) (any, error) {
		return struct{}{}, v.Join(r.Context())
	}))
	h.mux.HandleFunc("POST /v1/fetch", plain(func(r *http.Request) (any, error) {
		return v.Fetch(r.Context())
	}))
	h.mux.HandleFunc("GET /v1/conflicts", plain(func(r *http.Request) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		return v.Conflicts(r.Context(), p)
	}))
	h.mux.HandleFunc("GET /v1/deleted", plain(func(r *http.Request) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		return v.Deleted(r.Context(), p)
	}))
	h.mux.HandleFunc("POST /v1/undelete", stream(func(r *http.Request, progress func(Progress)) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		return v.Undelete(r.Context(), p, progress)
	}))
	h.mux.HandleFunc("POST /v1/export-remote", plain(func(r *http.Request) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		q := r.URL.Query()
		return v.Export(r.Context(), q.Get("name"), p, q.Get("serving") == "true")
	}))
	h.mux.HandleFunc("POST /v1/repair-remote", stream(func(r *http.Request, progress func(Progress)) (any, error) {
		return v.RepairRemote(r.Context(), r.URL.Query()["writer"], progress)
	}))
}

// Push is Remote.Push.
func (c *Client) Push(ctx context.Context, path string, o PushOptions, progress func(Progress)) (
	*Pushed, error) {
	return follow[Pushed](ctx, c, "push", o.query(path), progress)
}

// Join is Remote.Join.
func (c *Client) Join(ctx context.Context) error {
	_, err := ask[struct{}](ctx, c, http.MethodPost, "join", nil)
	return err
}

// Pull is Remote.Pull.
func (c *Client) Pull(ctx context.Context, path string, progress func(Progress)) (*Pulled, error) {
	return follow[Pulled](ctx, c, "pull", url.Values{"path": {path}}, progress)
}

// Drop is Remote.Drop.
func (c *Client) Drop(ctx context.Context, path string, progress func(Progress)) (*Dropped, error) {
	return follow[Dropped](ctx, c, "drop", url.Values{"path": {path}}, progress)
}

// Fetch is Remote.Fetch.
func (c *Client) Fetch(ctx context.Context) (*Fetched, error) {
	return ask[Fetched](ctx, c, http.MethodPost, "fetch", nil)
}

// Conflicts is Remote.Conflicts.
func (c *Client) Conflicts(ctx context.Context, path string) (*Conflicts, error) {
	return ask[Conflicts](ctx, c, http.MethodGet, "conflicts", url.Values{"path": {path}})
}

// Deleted is Remote.Deleted.
func (c *Client) Deleted(ctx context.Context, path string) (*Deletions, error) {
	return ask[Deletions](ctx, c, http.MethodGet, "deleted", url.Values{"path": {path}})
}

// Undelete is Remote.Undelete.
func (c *Client) Undelete(ctx context.Context, path string, progress func(Progress)) (*Undeleted, error) {
	return follow[Undeleted](ctx, c, "undelete", url.Values{"path": {path}}, progress)
}

// RepairRemote is Remote.RepairRemote.
func (c *Client) RepairRemote(ctx context.Context, writers []string,
	progress func(Progress)) (*RemoteRepaired, error) {
	return follow[RemoteRepaired](ctx, c, "repair-remote", url.Values{"writer": writers}, progress)
}

// Export is Remote.Export.
func (c *Client) Export(ctx context.Context, name, path string, serving bool) (*Exported, error) {
	return ask[Exported](ctx, c, http.MethodPost, "export-remote", url.Values{"name": {name}, "path": {path},
		"serving": {strconv.FormatBool(serving)}})
}
