package control

import (
	"net/http"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

// did logs what was removed, or given back, for whom: a user and a process.
func (h *Handler) did(r *http.Request, what string, args ...any) {
	if h.mount.Log == nil {
		return
	}
	if peer, ok := r.Context().Value(peerKey{}).(*unix.Ucred); ok {
		id := strconv.FormatUint(uint64(peer.Uid), 10)
		name := id
		if u, err := user.LookupId(id); err == nil {
			name = u.Username
		}
		args = append(args, "user", name, "pid", peer.Pid)
	}
	h.mount.Log(what, args...)
}

// forgot logs steps that a command has removed from a run, as any program may.
func (h *Handler) forgot(r *http.Request) (any, error) {
	p, err := pathOf(r)
	if err != nil {
		return nil, err
	}
	h.did(r, "steps were forgotten", "run", p, "steps", r.URL.Query()["step"])
	return struct{}{}, nil
}

// dropped logs files whose optimizer state a command has removed, as any program may.
func (h *Handler) dropped(r *http.Request) (any, error) {
	p, err := pathOf(r)
	if err != nil {
		return nil, err
	}
	h.did(r, "optimizer state was removed by the policy", "run", p, "files", r.URL.Query()["file"])
	return struct{}{}, nil
}

func (h *Handler) evict(r *http.Request, progress func(Progress)) (any, error) {
	v, err := moving(h.vol.Evict)(r, progress)
	if m, ok := v.(*Moved); ok && err == nil {
		h.did(r, "local copies were evicted", "path", r.URL.Query().Get("path"), "files", m.Files, "bytes", m.Bytes)
	}
	return v, err
}
