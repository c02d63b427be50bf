package control

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// Folders moves folders into a volume.
type Folders interface {
	// TakeIn moves a folder of the store's filesystem, whose path is absolute, to a path that is not there.
	TakeIn(ctx context.Context, from, path string) error
}

func (h *Handler) folders(f Folders) {
	h.mux.HandleFunc("POST /v1/takein", plain(func(r *http.Request) (any, error) {
		p, err := pathOf(r)
		from := r.URL.Query().Get("from")
		if err == nil && (!path.IsAbs(from) || strings.ContainsRune(from, 0)) {
			err = &Error{Code: CodeInvalid, Message: "the folder to move has no absolute path", Errno: "EINVAL"}
		}
		if err != nil {
			return nil, err
		}
		err = f.TakeIn(r.Context(), from, p)
		if err == nil {
			h.did(r, "a folder was moved in", "from", from, "path", p)
		}
		return struct{}{}, err
	}))
}

// TakeIn is Folders.TakeIn.
func (c *Client) TakeIn(ctx context.Context, from, path string) error {
	_, err := ask[struct{}](ctx, c, http.MethodPost, "takein", url.Values{"path": {path}, "from": {from}})
	return err
}
