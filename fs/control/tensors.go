package control

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// Tensors is what a volume knows of files' tensors, besides where they are.
type Tensors interface {
	// Inspect is Volume.Show, and what it has to read the tensors for.
	Inspect(ctx context.Context, path string, o InspectOptions, tensors Passes,
		progress func(Progress)) (*File, error)
	// Outline tells a part of a file's tensors, and which models first stored them.
	Outline(ctx context.Context, o OutlineOptions) (*Outline, error)
	// Verify tells which share of the tensors at or below one path follows from those of packed files at or
	// below another.
	Verify(ctx context.Context, a, b string, progress func(Progress)) (*Verified, error)
	// Tensor opens one tensor of a file: its elements, row-major and without gaps, with the header of a .npy
	// file before them if npy is set.
	Tensor(ctx context.Context, path, name string, npy bool) (*TensorData, error)
}

// InspectOptions say what Inspect reads tensors for.
type InspectOptions struct {
	Stats    bool // Tensor.Stats
	Artifact bool // File.Artifact, however large the file is
}

// TensorStats describes the elements of a tensor, of a complex one both components. Min, Max and Mean are of
// the finite ones, and NaN when there is none.
type TensorStats struct {
	Count int64  `json:"count"`
	NaN   int64  `json:"nan"`
	Inf   int64  `json:"inf"`
	Zero  int64  `json:"zero"`
	Min   Number `json:"min"`
	Max   Number `json:"max"`
	Mean  Number `json:"mean"`
}

// TensorData is an open tensor.
type TensorData struct {
	Size int64 // bytes
	io.ReadCloser
}

func (o InspectOptions) query(path string) url.Values {
	q := url.Values{"path": {path}}
	if o.Stats {
		q.Set("stats", "1")
	}
	if o.Artifact {
		q.Set("artifact", "1")
	}
	return q
}

// tensors adds what Tensors answers.
func (h *Handler) tensors(t Tensors) {
	h.outline(t)
	h.mux.HandleFunc("POST /v1/verify", stream(func(r *http.Request, progress func(Progress)) (any, error) {
		a, b, err := pathsOf(r)
		if err != nil {
			return nil, err
		}
		return t.Verify(r.Context(), a, b, progress)
	}))
	h.mux.HandleFunc("POST /v1/inspect", parted(func(r *http.Request, part func(line) error,
		progress func(Progress)) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		q := r.URL.Query()
		var tensors Passes
		if q.Get("passes") == "1" {
			tensors = func(some []Tensor) error { return part(line{Tensors: some}) }
		}
		return t.Inspect(r.Context(), p, InspectOptions{Stats: q.Get("stats") == "1",
			Artifact: q.Get("artifact") == "1"}, tensors, progress)
	}))
	h.mux.HandleFunc("GET /v1/tensor", func(w http.ResponseWriter, r *http.Request) {
		p, err := pathOf(r)
		var d *TensorData
		if err == nil {
			q := r.URL.Query()
			d, err = t.Tensor(r.Context(), p, q.Get("name"), q.Get("npy") == "1")
		}
		if err != nil {
			writeError(w, AsError(err))
			return
		}
		sendBytes(w, d.Size, d)
	})
}

// Inspect is Tensors.Inspect.
func (c *Client) Inspect(ctx context.Context, path string, o InspectOptions, tensors Passes,
	progress func(Progress)) (*File, error) {
	var all []Tensor
	take := tensors
	if take == nil {
		take = func(some []Tensor) error {
			all = append(all, some...)
			return nil
		}
	}
	q := o.query(path)
	q.Set("passes", "1")
	f, err := followParts[File](ctx, c, "inspect", q, func(l *line) error {
		if l.Tensors == nil {
			return nil
		}
		return take(l.Tensors)
	}, progress)
	if err != nil {
		return nil, err
	}
	if len(f.Tensors) == 0 { // an older daemon has them in its result
		f.Tensors = all
	}
	return f, tensors.give(f)
}

// Verify is Tensors.Verify.
func (c *Client) Verify(ctx context.Context, a, b string, progress func(Progress)) (*Verified, error) {
	return follow[Verified](ctx, c, "verify", url.Values{"a": {a}, "b": {b}}, progress)
}

// Tensor is Tensors.Tensor. A read of it that cannot go on is an error, and no end.
func (c *Client) Tensor(ctx context.Context, path, name string, npy bool) (*TensorData, error) {
	q := url.Values{"path": {path}, "name": {name}}
	if npy {
		q.Set("npy", "1")
	}
	resp, err := c.request(ctx, http.MethodGet, "tensor", q, nil)
	if err != nil {
		return nil, err
	}
	body, err := wholeBodyOf(ctx, resp, fmt.Sprintf("tensor %s of %s", name, path))
	if err != nil {
		resp.Body.Close()
		return nil, gone(ctx, err)
	}
	return &TensorData{Size: body.left, ReadCloser: body}, nil
}

// wholeBody reads an answer of a known length.
type wholeBody struct {
	io.ReadCloser
	ctx  context.Context
	left int64
	what string
}

func wholeBodyOf(ctx context.Context, resp *http.Response, what string) (*wholeBody, error) {
	size, err := strconv.ParseInt(resp.Header.Get("Content-Length"), 10, 64)
	if err == nil && size < 0 {
		err = fmt.Errorf("length %d", size)
	}
	return &wholeBody{ReadCloser: resp.Body, ctx: ctx, left: size, what: what}, err
}

func (b *wholeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); err != nil && b.left > 0 {
		if cerr := b.ctx.Err(); cerr != nil {
			return n, cerr
		}
		err = &Error{Code: CodeCorrupt, Message: fmt.Sprintf(
			"%s: its last %d bytes could not be read: the daemon's log says why, or `ckptfs check --read-data`", b.what, b.left)}
	}
	return n, err
}

var _ Tensors = (*Client)(nil)
