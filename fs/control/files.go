package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"
)

// Files is the tree of a volume, for those who have no mount of it.
type Files interface {
	// Entry describes what is at a path. A symbolic link is not followed.
	Entry(ctx context.Context, path string) (*Entry, error)
	// Entries describes what is in a folder, some at a time, in the order of the names. Views are among it.
	Entries(ctx context.Context, path string, some func([]Entry) error) error
	// Bytes opens a file, or a view, at the first byte from off on that is not in a hole, up to the next hole
	// or the end. No such byte: Size is 0, and Off the size of the file.
	Bytes(ctx context.Context, path string, off int64) (*Stretch, error)
	// Attributes are the extended attributes user.* of a file or folder, but for the store's own.
	Attributes(ctx context.Context, path string) ([]Attribute, error)
}

// Attribute is an extended attribute.
type Attribute struct {
	Name  Name   `json:"name"`
	Value []byte `json:"value"`
}

// Entry is one name of the tree.
type Entry struct {
	Name  Name   `json:"name"`
	Mode  uint32 `json:"mode"`            // st_mode
	Size  int64  `json:"size"`            // bytes
	State string `json:"state,omitempty"` // of a regular file
	View  bool   `json:"view,omitempty"`  // synthesised from another file
	// where a symbolic link leads to, as it says
	Target Name      `json:"target,omitempty"`
	Mtime  time.Time `json:"mtime"`
	Ctime  time.Time `json:"ctime"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	Ino    uint64    `json:"ino"`
	Links  uint32    `json:"links"`
	Blocks int64     `json:"blocks"` // of 512 bytes: those that all of it takes when it is plain
}

// Name is a name as Linux has it: any bytes. In JSON it is a string, or {"base64": …} if it is not UTF-8.
type Name string

// rawName is a Name that is not UTF-8, in JSON.
type rawName struct {
	Base64 []byte `json:"base64"`
}

// Exact is name if it is not UTF-8, which a string in JSON would change; else "".
func Exact(name string) Name {
	if utf8.ValidString(name) {
		return ""
	}
	return Name(name)
}

// MarshalJSON makes Name a json.Marshaler.
func (n Name) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(n)) {
		return json.Marshal(string(n))
	}
	return json.Marshal(rawName{[]byte(n)})
}

// UnmarshalJSON makes *Name a json.Unmarshaler.
func (n *Name) UnmarshalJSON(p []byte) error {
	if len(p) > 0 && p[0] == '{' {
		var raw rawName
		err := json.Unmarshal(p, &raw)
		*n = Name(raw.Base64)
		return err
	}
	return json.Unmarshal(p, (*string)(n))
}

// Stretch is the bytes of a file between two holes. A read of it that cannot go on is an error, and no end.
type Stretch struct {
	Off, Size int64
	Last      bool // the file ends with it; false says nothing
	io.ReadCloser
}

// offsetHeader is where a stretch begins.
const offsetHeader = "Ckptfs-Offset"

// files adds what Files answers.
func (h *Handler) files(f Files) {
	h.mux.HandleFunc("GET /v1/entry", plain(func(r *http.Request) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		return f.Entry(r.Context(), p)
	}))
	h.mux.HandleFunc("GET /v1/attributes", plain(func(r *http.Request) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		all, err := f.Attributes(r.Context(), p)
		return attributes{all}, err
	}))
	h.mux.HandleFunc("POST /v1/entries", parted(func(r *http.Request, part func(line) error,
		_ func(Progress)) (any, error) {
		p, err := pathOf(r)
		if err != nil {
			return nil, err
		}
		return struct{}{}, f.Entries(r.Context(), p, func(some []Entry) error {
			return part(line{Entries: some})
		})
	}))
	h.mux.HandleFunc("GET /v1/bytes", func(w http.ResponseWriter, r *http.Request) {
		p, err := pathOf(r)
		var off int64
		if err == nil {
			if off, err = strconv.ParseInt(r.URL.Query().Get("off"), 10, 64); err != nil || off < 0 {
				err = Invalid("%q is no offset", r.URL.Query().Get("off"))
			}
		}
		end := int64(math.MaxInt64)
		if said := r.URL.Query().Get("end"); err == nil && said != "" {
			if end, err = strconv.ParseInt(said, 10, 64); err != nil || end < off {
				err = Invalid("%q is no end of what begins at %d", said, off)
			}
		}
		var s *Stretch
		if err == nil {
			s, err = f.Bytes(r.Context(), p, off)
		}
		if err != nil {
			writeError(w, AsError(err))
			return
		}
		w.Header().Set(offsetHeader, strconv.FormatInt(s.Off, 10))
		sendBytes(w, min(s.Size, max(0, end-s.Off)), s)
	})
}

type attributes struct {
	Attributes []Attribute `json:"attributes"`
}

// sendBytes answers with so many bytes, and closes what they are read from. What is missing tells the caller
// that it failed; the volume has reported why.
func sendBytes(w http.ResponseWriter, size int64, from io.ReadCloser) {
	defer from.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.WriteHeader(http.StatusOK)
	_, _ = io.CopyBuffer(struct{ io.Writer }{w}, io.LimitReader(from, size), make([]byte, min(size, 1<<20)+1))
}

// Entry is Files.Entry.
func (c *Client) Entry(ctx context.Context, path string) (*Entry, error) {
	return ask[Entry](ctx, c, http.MethodGet, "entry", url.Values{"path": {path}})
}

// Entries is Files.Entries.
func (c *Client) Entries(ctx context.Context, path string, some func([]Entry) error) error {
	_, err := followParts[struct{}](ctx, c, "entries", url.Values{"path": {path}},
		func(l *line) error { return some(l.Entries) }, nil)
	return err
}

// Attributes is Files.Attributes.
func (c *Client) Attributes(ctx context.Context, path string) ([]Attribute, error) {
	all, err := ask[attributes](ctx, c, http.MethodGet, "attributes", url.Values{"path": {path}})
	if err != nil {
		return nil, err
	}
	return all.Attributes, nil
}

// Bytes is Files.Bytes.
func (c *Client) Bytes(ctx context.Context, path string, off int64) (*Stretch, error) {
	return c.bytes(ctx, path, url.Values{}, off)
}

// BytesUpTo is Bytes of what lies before end: the volume reads no more. An older daemon sends all.
func (c *Client) BytesUpTo(ctx context.Context, path string, off, end int64) (*Stretch, error) {
	s, err := c.bytes(ctx, path, url.Values{"end": {strconv.FormatInt(end, 10)}}, off)
	if err == nil && s.Off+s.Size > end {
		s.Size = max(0, end-s.Off)
	}
	return s, err
}

func (c *Client) bytes(ctx context.Context, path string, q url.Values, off int64) (*Stretch, error) {
	q.Set("path", path)
	q.Set("off", strconv.FormatInt(off, 10))
	resp, err := c.request(ctx, http.MethodGet, "bytes", q, nil)
	if err != nil {
		return nil, err
	}
	at, err := strconv.ParseInt(resp.Header.Get(offsetHeader), 10, 64)
	var body *wholeBody
	if err == nil {
		body, err = wholeBodyOf(ctx, resp, path)
	}
	if err == nil && at < off && body.left > 0 {
		err = fmt.Errorf("bytes from %d, not from %d", at, off)
	}
	if err != nil {
		resp.Body.Close()
		return nil, gone(ctx, err)
	}
	return &Stretch{Off: at, Size: body.left, ReadCloser: body}, nil
}

var _ Files = (*Client)(nil)
