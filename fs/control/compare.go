package control

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// DiffOptions say what is compared with what, and how closely.
type DiffOptions struct {
	A, B string // relative to the mount's root
	// Of a tensor that differs and takes more bytes than this, only so many are read, spread over it, and the
	// figures are of these elements. 0: all is read.
	Sample int64
}

// Diff is what differs between the tensors of A and B.
type Diff struct {
	A          string     `json:"a"` // of a run: its last complete step
	B          string     `json:"b"`
	Files      []FilePair `json:"files"` // which were compared with which
	Equal      int        `json:"equal"`
	EqualBytes int64      `json:"equal_bytes"`
	TensorLists
	Others    []OtherFile `json:"others"` // files without tensors that differ
	ReadBytes int64       `json:"read_bytes"`
}

// TensorLists are tensors that differ.
type TensorLists struct {
	Changed  []TensorChange `json:"changed"`  // elements differ, or their type does
	Reshaped []TensorChange `json:"reshaped"` // of another shape
	Added    []TensorRef    `json:"added"`    // in B only
	Removed  []TensorRef    `json:"removed"`  // in A only
}

// NoTensors are empty lists, as JSON has them.
func NoTensors() TensorLists {
	return TensorLists{Changed: []TensorChange{}, Reshaped: []TensorChange{}, Added: []TensorRef{},
		Removed: []TensorRef{}}
}

// add adds those of m behind those of l.
func (l *TensorLists) add(m *TensorLists) {
	l.Changed, l.Reshaped = append(l.Changed, m.Changed...), append(l.Reshaped, m.Reshaped...)
	l.Added, l.Removed = append(l.Added, m.Added...), append(l.Removed, m.Removed...)
}

// Differences takes tensors that differ, some at a time, in order: there may be a million. An error of it
// ends the request. Where it is nil, they are in the Diff.
type Differences func(TensorLists) error

// FilePair is two files that were compared.
type FilePair struct {
	A string `json:"a"`
	B string `json:"b"`
}

// TensorRef is a tensor of a file.
type TensorRef struct {
	File  string  `json:"file"`
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
	Bytes int64   `json:"bytes"`
	Hash  string  `json:"hash,omitempty"`
}

// TensorChange is a tensor that both sides have, and that differs.
type TensorChange struct {
	Name   string  `json:"name"`
	File   string  `json:"file"` // of B
	DTypeA string  `json:"dtype_a"`
	DType  string  `json:"dtype"`
	ShapeA []int64 `json:"shape_a"`
	Shape  []int64 `json:"shape"`
	Bytes  int64   `json:"bytes"` // of B

	SameBytes bool `json:"same_bytes,omitempty"` // reshaped, and nothing else

	// Of one that has changed, where its type is of numbers; MaxAbs and RelNorm are nil where it is not.
	Elements        int64   `json:"elements,omitempty"`
	ChangedElements int64   `json:"changed_elements,omitempty"`
	Special         int64   `json:"special,omitempty"`  // of those, the ones that are no finite number on one side
	Share           float64 `json:"share,omitempty"`    // of the elements, that differ
	MaxAbs          *Number `json:"max_abs,omitempty"`  // greatest |B-A|
	RelNorm         *Number `json:"rel_norm,omitempty"` // |B-A| / |A|
	Norm            *Number `json:"norm_a,omitempty"`   // |A|; of a sample: about that
	// how many elements were read, where a sample was: ChangedElements, Special and Share are of these
	Sampled int64 `json:"sampled_elements,omitempty"`
}

// Missed reports whether nothing of what was read differs: a sample was, and the change is elsewhere.
func (c *TensorChange) Missed() bool { return c.Sampled > 0 && c.ChangedElements == 0 }

// OtherFile is a file without tensors.
type OtherFile struct {
	Path string `json:"path"` // below A or B
	What string `json:"what"` // "added", "removed", "changed", or why it was not compared
}

// FindOptions say what to look for: a hash, at least its first 8 digits, or the content of a file's tensor.
type FindOptions struct {
	Hash   string
	Path   string
	Tensor string
}

// Found is where tensors of one content are.
type Found struct {
	Hash    string      `json:"hash"` // as it was asked for
	Tensors []TensorRef `json:"tensors"`
}

func (h *Handler) comparing(m Models) {
	h.mux.HandleFunc("POST /v1/diff", parted(func(r *http.Request, part func(line) error,
		progress func(Progress)) (any, error) {
		a, b, err := pathsOf(r)
		if err != nil {
			return nil, err
		}
		differences := func(l TensorLists) error { return part(line{Differences: &l}) }
		if r.URL.Query().Get("passes") != "1" {
			differences = nil
		}
		o := DiffOptions{A: a, B: b}
		if s := r.URL.Query().Get("sample"); s != "" {
			if o.Sample, err = strconv.ParseInt(s, 10, 64); err != nil || o.Sample < 0 {
				return nil, Invalid("sample %q is no number of bytes", s)
			}
		}
		return m.Diff(r.Context(), o, differences, progress)
	}))
	h.mux.HandleFunc("GET /v1/find", plain(func(r *http.Request) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		q := r.URL.Query()
		return m.Find(r.Context(), FindOptions{Hash: q.Get("hash"), Path: p, Tensor: q.Get("tensor")})
	}))
}

// Diff is Models.Diff.
func (c *Client) Diff(ctx context.Context, o DiffOptions, parts Differences,
	progress func(Progress)) (*Diff, error) {
	all := NoTensors()
	take := parts
	if take == nil {
		take = func(l TensorLists) error {
			all.add(&l)
			return nil
		}
	}
	q := url.Values{"a": {o.A}, "b": {o.B}, "passes": {"1"}}
	if o.Sample > 0 {
		q.Set("sample", strconv.FormatInt(o.Sample, 10))
	}
	d, err := followParts[Diff](ctx, c, "diff", q,
		func(l *line) error {
			if l.Differences == nil {
				return nil
			}
			return take(*l.Differences)
		}, progress)
	if err != nil {
		return nil, err
	}
	all.add(&d.TensorLists)
	if parts != nil {
		d.TensorLists = TensorLists{}
		return d, parts(all)
	}
	d.TensorLists = all
	return d, nil
}

// Find is Models.Find.
func (c *Client) Find(ctx context.Context, o FindOptions) (*Found, error) {
	return ask[Found](ctx, c, http.MethodGet, "find",
		url.Values{"hash": {o.Hash}, "path": {o.Path}, "tensor": {o.Tensor}})
}
