package control

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// DefaultGrace is how old what a prune takes must be, where nobody says otherwise.
const DefaultGrace = 24 * time.Hour

// DuOptions say of what a Du is.
type DuOptions struct {
	Paths  []string
	ByUser bool // the parts are what each user owns
	Brief  bool // neither the parts nor who shares are asked for
	// Only is the part of the answer that is asked for: for answers that are made bit by bit. The rest of it
	// is zero.
	Only DuPart
}

// DuPart is a part of a Du.
type DuPart string

// The parts that can be asked for.
const (
	DuAll     DuPart = ""
	DuSizes   DuPart = "sizes"   // what files take in the tree, all together and by Parts: nothing is read
	DuParts   DuPart = "parts"   // Parts
	DuSharers DuPart = "sharers" // all but Parts
)

// Use is what some files take, and what removing them gives back.
//
//	StoredBytes  the records that they need, with their headers: chunks, lists and manifests, and what these
//	             are stored against
//	AloneBytes   the part of StoredBytes that nothing else needs: a prune gives it back once they are removed
//	LocalBytes   what they take in the tree: plain files, and local copies of packed ones
//	FreedBytes   the part of LocalBytes that removing them gives back at once: not of files with other names
type Use struct {
	Name         string `json:"name"` // path relative to the mount's root, or the number of a user
	Files        int64  `json:"files"`
	LogicalBytes int64  `json:"logical_bytes"`
	StoredBytes  int64  `json:"stored_bytes"`
	AloneBytes   int64  `json:"alone_bytes"`
	LocalBytes   int64  `json:"local_bytes"`
	FreedBytes   int64  `json:"freed_bytes"`
}

// Du is the Use of all the paths that were asked for, each file and record counted once.
type Du struct {
	Use
	// the part of AloneBytes that a prune with DefaultGrace leaves alone for now
	YoungBytes int64 `json:"young_bytes"`
	// Unmounted: the store is not, so that nothing of it is being packed
	Unmounted bool `json:"unmounted,omitempty"`
	// Parts are the paths, or what is in the folder that is the only one, or what each user owns: those that
	// take most. Records are counted in each part that needs them.
	Parts     []Use `json:"parts"`
	MoreParts int   `json:"more_parts"`
	// SharedWith are those who need some of StoredBytes, too, the greatest first.
	SharedWith []Sharer `json:"shared_with"`
	MoreShare  int      `json:"more_sharers"`
}

// Sharer is a step, or a file in no step, and the bytes of the records that it needs as well.
type Sharer struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

func (o DuOptions) query() url.Values {
	q := url.Values{"path": o.Paths}
	if o.ByUser {
		q.Set("by_user", "1")
	}
	if o.Brief {
		q.Set("brief", "1")
	}
	if o.Only != DuAll {
		q.Set("only", string(o.Only))
	}
	return q
}

// maxPaths bounds the request of a Du in bytes.
const maxPaths = 64 << 20

// du takes its query as the body: it may have the paths of very many steps.
func (h *Handler) du(r *http.Request) (any, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxPaths))
	if err != nil {
		return nil, &Error{Code: CodeInvalid, Message: "du: " + err.Error(), Errno: "EINVAL"}
	}
	q, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, &Error{Code: CodeInvalid, Message: "du: " + err.Error(), Errno: "EINVAL"}
	}
	o := DuOptions{ByUser: q.Get("by_user") == "1", Brief: q.Get("brief") == "1",
		Only: DuPart(q.Get("only"))}
	if !slices.Contains([]DuPart{DuAll, DuSizes, DuParts, DuSharers}, o.Only) {
		return nil, Invalid("du: no answer has a part %q", o.Only)
	}
	for _, p := range q["path"] {
		p, err := cleanPath(p)
		if err != nil {
			return nil, err
		}
		o.Paths = append(o.Paths, p)
	}
	d, err := h.vol.Du(r.Context(), o)
	if err != nil {
		return nil, err
	}
	if d.Parts == nil {
		d.Parts = []Use{}
	}
	if d.SharedWith == nil {
		d.SharedWith = []Sharer{}
	}
	return d, nil
}
