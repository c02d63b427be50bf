package control

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

// Mount is what a volume does not know about itself: where it is mounted, how, and by which program.
// The zero value is a volume that is not mounted.
type Mount struct {
	Version    string
	Store      string // absolute
	Mountpoint string // absolute; "" when not mounted
	Mode       string // ModePassthrough, ModeServed; "" is ModeUnmounted
	ModeReason string
	PID        int
	Started    time.Time
	Kernels    string // the level of simd's whose kernels run
	Metrics    string // the address of the metrics' listener; "" without one

	// Log has what was removed, and for whom, in the daemon's log. May be nil.
	Log func(msg string, args ...any)

	// Unmount frees the mountpoint and returns; the process ends on its own after that. lazy detaches a mount
	// that is in use. nil when not mounted.
	Unmount func(ctx context.Context, lazy bool) error

	// Handover is the version of what a daemon leaves to the next one, and Upgrade has the program at a path
	// serve the mount: this process ends after the answer. nil when not mounted, or without a holder.
	Handover int
	Upgrade  func(program string) error
}

// Services answer the protocol's requests. All but Volume may be nil: their requests are not known then.
type Services struct {
	Volume   Volume
	Models   Models
	Tensors  Tensors
	Remote   Remote
	Files    Files
	Folders  Folders
	Policies Policies
}

// Handler serves the protocol for one volume.
type Handler struct {
	vol   Volume
	mount Mount
	mux   *http.ServeMux
}

// NewHandler returns the handler of what s answers, of a volume that is mounted as m says.
func NewHandler(s Services, m Mount) *Handler {
	v := s.Volume
	m.Mode = cmp.Or(m.Mode, ModeUnmounted)
	h := &Handler{vol: v, mount: m, mux: http.NewServeMux()}
	h.mux.HandleFunc("GET /v1/stats", plain(func(r *http.Request) (any, error) {
		return v.Stats(r.Context())
	}))
	h.mux.HandleFunc("GET /v1/status", plain(h.status))
	h.mux.HandleFunc("POST /v1/du", plain(h.du))
	h.mux.HandleFunc("GET /v1/show", h.show)
	h.mux.HandleFunc("POST /v1/unmount", plain(h.unmount))
	h.mux.HandleFunc("POST /v1/upgrade", plain(h.upgrade))
	h.mux.HandleFunc("POST /v1/sync", stream(h.sync))
	h.mux.HandleFunc("POST /v1/evict", stream(h.evict))
	h.mux.HandleFunc("POST /v1/hydrate", stream(moving(v.Hydrate)))
	h.mux.HandleFunc("POST /v1/forgot", plain(h.forgot))
	h.mux.HandleFunc("POST /v1/dropped", plain(h.dropped))
	h.mux.HandleFunc("POST /v1/prune", stream(h.prune))
	h.mux.HandleFunc("POST /v1/compact", stream(h.compact))
	h.mux.HandleFunc("POST /v1/check", stream(h.check))
	if s.Models != nil {
		h.models(s.Models)
	}
	if s.Tensors != nil {
		h.tensors(s.Tensors)
	}
	if s.Remote != nil {
		h.remote(s.Remote)
	}
	if s.Folders != nil {
		h.folders(s.Folders)
	}
	if s.Files != nil {
		h.files(s.Files)
	}
	if s.Policies != nil {
		h.policies(s.Policies)
	}
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &Error{Code: CodeInvalid, Message: fmt.Sprintf(
			"%s %s is not known to ckptfs %s, which runs there: it is of another version than the one that asks", r.Method, r.URL.Path, m.Version)})
	})
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

func (h *Handler) status(r *http.Request) (any, error) {
	st, err := h.vol.Status(r.Context())
	if err != nil {
		return nil, err
	}
	out := *st
	m := h.mount
	out.Version = cmp.Or(m.Version, out.Version)
	out.Store = cmp.Or(m.Store, out.Store)
	out.Mountpoint = cmp.Or(m.Mountpoint, out.Mountpoint)
	out.Mode = cmp.Or(m.Mode, out.Mode)
	out.ModeReason = cmp.Or(m.ModeReason, out.ModeReason)
	out.PID = cmp.Or(m.PID, out.PID)
	out.Kernels, out.Metrics = m.Kernels, m.Metrics
	if !m.Started.IsZero() {
		out.Started = m.Started
	}
	if out.Packing == nil {
		out.Packing = []string{}
	}
	if out.Failures == nil {
		out.Failures = []Failure{}
	}
	return &out, nil
}

func (h *Handler) unmount(r *http.Request) (any, error) {
	if h.mount.Unmount == nil {
		return nil, &Error{Code: CodeUnsupported, Message: fmt.Sprintf("%s is not mounted", h.mount.Store)}
	}
	return struct{}{}, h.mount.Unmount(r.Context(), r.URL.Query().Get("lazy") == "1")
}

func (h *Handler) upgrade(r *http.Request) (any, error) {
	if h.mount.Upgrade == nil {
		return nil, &Error{Code: CodeUnsupported, Message: fmt.Sprintf(
			"the daemon of %s has no holder, which would start the next one: unmount it, and mount it again", h.mount.Store)}
	}
	q := r.URL.Query()
	if asked := q.Get("handover"); asked != strconv.Itoa(h.mount.Handover) {
		return nil, &Error{Code: CodeUnsupported, Message: fmt.Sprintf(
			"ckptfs %s hands a mount over in format %d, and the other program takes format %s: unmount, and mount with that one",
			h.mount.Version, h.mount.Handover, asked)}
	}
	return struct{}{}, h.mount.Upgrade(q.Get("program"))
}

func (h *Handler) sync(r *http.Request, progress func(Progress)) (any, error) {
	return struct{}{}, h.vol.Sync(r.Context(), progress)
}

func (h *Handler) prune(r *http.Request, progress func(Progress)) (any, error) {
	o, err := pruneOptions(r.URL.Query())
	if err != nil {
		return nil, err
	}
	p, err := h.vol.Prune(r.Context(), o, progress)
	if err == nil && !o.DryRun {
		h.did(r, "the store was pruned", "grace", o.Grace, "chunks", p.DeadRecords, "freed_bytes", p.FreedBytes)
	}
	return p, err
}

func (h *Handler) compact(r *http.Request, progress func(Progress)) (any, error) {
	o := CompactOptions{DryRun: r.URL.Query().Get("dry_run") == "1"}
	c, err := h.vol.Compact(r.Context(), o, progress)
	if err == nil && !o.DryRun {
		h.did(r, "the store was compacted", "chunks", c.Chunks, "freed_bytes", c.FreedBytes)
	}
	return c, err
}

func (h *Handler) check(r *http.Request, progress func(Progress)) (any, error) {
	o, err := checkOptions(r.URL.Query())
	if err != nil {
		return nil, err
	}
	return h.vol.Check(r.Context(), o, progress)
}

func moving(
	move func(context.Context, string, func(Progress)) (*Moved, error),
) func(*http.Request, func(Progress)) (any, error) {
	return func(r *http.Request, progress func(Progress)) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		m, err := move(r.Context(), p, progress)
		if err == nil && m.Skipped == nil {
			m.Skipped = []Skip{}
		}
		return m, err
	}
}

// pathOf is the request's path, made relative and cleaned; it cannot climb above the root.
func pathOf(r *http.Request) (string, error) {
	return cleanPath(r.URL.Query().Get("path"))
}

// pathsOf is the two paths of a request that is about two places.
func pathsOf(r *http.Request) (a, b string, err error) {
	q := r.URL.Query()
	if a, err = cleanPath(q.Get("a")); err == nil {
		b, err = cleanPath(q.Get("b"))
	}
	return a, b, err
}

func cleanPath(p string) (string, error) {
	if strings.ContainsRune(p, 0) {
		return "", &Error{Code: CodeInvalid, Message: "a path holds a zero byte", Errno: "EINVAL"}
	}
	return path.Clean("/" + p)[1:], nil
}

func plain(do func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := do(r)
		if err != nil {
			writeError(w, AsError(err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		// A failed write means that the caller has gone.
		_ = json.NewEncoder(w).Encode(v)
	}
}

func writeError(w http.ResponseWriter, e *Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status())
	_ = json.NewEncoder(w).Encode(e)
}
