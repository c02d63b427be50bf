package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrNoDaemon: no daemon answers on the store's socket.
var ErrNoDaemon = errors.New("no daemon holds this store")

// Client asks a volume, wherever it lives.
type Client struct {
	http  *http.Client
	pid   int
	uid   uint32
	conns chan net.Conn // the connection of Dial until a request takes it
	dir   *os.File      // the store's folder; nil in process

	inside *transport // in process; else nil
}

// Dial connects to the daemon that holds the store. The error is ErrNoDaemon when there is none, also when
// one died and left its socket.
func Dial(ctx context.Context, store string) (*Client, error) {
	return DialAt(ctx, filepath.Join(store, SocketName))
}

// DialAt is Dial for a daemon whose socket is elsewhere: one that may not write to the store.
func DialAt(ctx context.Context, socket string) (*Client, error) {
	folder, name := filepath.Split(socket)
	dir, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", in(dir, name))
	}
	first, err := dial(ctx)
	if err != nil {
		dir.Close()
	}
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%s: %w", filepath.Dir(socket), ErrNoDaemon)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", socket, withoutNames(err))
	}
	c := &Client{dir: dir}
	if cred, err := peerOf(first); err == nil {
		c.pid, c.uid = int(cred.Pid), cred.Uid
	}
	c.conns = make(chan net.Conn, 1)
	c.conns <- first
	c.http = &http.Client{Transport: &http.Transport{
		ReadBufferSize: wireBuffer,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case conn := <-c.conns:
				return conn, nil
			default:
				return dial(ctx)
			}
		},
	}}
	return c, nil
}

// InProcess asks h directly: the store is opened by this process.
func InProcess(h http.Handler) *Client {
	t := newTransport(h)
	return &Client{http: &http.Client{Transport: t}, inside: t, pid: os.Getpid()}
}

// PID is the process that answers, as this process sees it, or 0 when it cannot.
func (c *Client) PID() int { return c.pid }

// UID is the user that the daemon runs as, as the kernel tells it.
func (c *Client) UID() uint32 { return c.uid }

// Close gives the connections back. The volume is not touched. In this process it cuts off what runs in it,
// and waits for that.
func (c *Client) Close() {
	if c.inside != nil {
		c.inside.close()
	}
	select {
	case conn := <-c.conns:
		conn.Close()
	default:
	}
	c.http.CloseIdleConnections()
	if c.dir != nil {
		c.dir.Close()
	}
}

// Stats is Volume.Stats.
func (c *Client) Stats(ctx context.Context) (*Stats, error) {
	return ask[Stats](ctx, c, http.MethodGet, "stats", nil)
}

// Status is Volume.Status, with the mount's side added.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return ask[Status](ctx, c, http.MethodGet, "status", nil)
}

// Du is Volume.Du.
func (c *Client) Du(ctx context.Context, o DuOptions) (*Du, error) {
	body, err := c.post(ctx, "du", nil, strings.NewReader(o.query().Encode()))
	if err != nil {
		return nil, err
	}
	return decode[Du](ctx, body)
}

// Forgot has the log say that steps of a run were removed.
func (c *Client) Forgot(ctx context.Context, run string, steps []string) error {
	_, err := ask[struct{}](ctx, c, http.MethodPost, "forgot", url.Values{"path": {run}, "step": steps})
	return err
}

// Dropped has the log say that files of a run lost their optimizer state.
func (c *Client) Dropped(ctx context.Context, run string, files []string) error {
	_, err := ask[struct{}](ctx, c, http.MethodPost, "dropped", url.Values{"path": {run}, "file": files})
	return err
}

// Show is Volume.Show.
func (c *Client) Show(ctx context.Context, path string, tensors Passes) (*File, error) {
	t, err := ask[told](ctx, c, http.MethodGet, "show", url.Values{"path": {path}})
	switch {
	case err != nil:
		return nil, err
	case t.Error != nil:
		return nil, t.Error
	case t.File == nil:
		t.File = &File{}
	}
	return t.File, tensors.give(t.File)
}

// Unmount asks the daemon to free the mountpoint; see Mount.Unmount.
func (c *Client) Unmount(ctx context.Context, lazy bool) error {
	q := url.Values{}
	if lazy {
		q.Set("lazy", "1")
	}
	_, err := ask[struct{}](ctx, c, http.MethodPost, "unmount", q)
	return err
}

// Upgrade has another program serve the mount; see Mount.Upgrade. handover is that program's Mount.Handover.
func (c *Client) Upgrade(ctx context.Context, program string, handover int) error {
	q := url.Values{"program": {program}, "handover": {strconv.Itoa(handover)}}
	_, err := ask[struct{}](ctx, c, http.MethodPost, "upgrade", q)
	return err
}

// Sync is Volume.Sync.
func (c *Client) Sync(ctx context.Context, progress func(Progress)) error {
	_, err := follow[struct{}](ctx, c, "sync", nil, progress)
	return err
}

// Evict is Volume.Evict.
func (c *Client) Evict(ctx context.Context, path string, progress func(Progress)) (*Moved, error) {
	return follow[Moved](ctx, c, "evict", url.Values{"path": {path}}, progress)
}

// Hydrate is Volume.Hydrate.
func (c *Client) Hydrate(ctx context.Context, path string, progress func(Progress)) (*Moved, error) {
	return follow[Moved](ctx, c, "hydrate", url.Values{"path": {path}}, progress)
}

// Prune is Volume.Prune.
func (c *Client) Prune(ctx context.Context, o PruneOptions, progress func(Progress)) (*Pruned, error) {
	return follow[Pruned](ctx, c, "prune", o.query(), progress)
}

// Compact is Volume.Compact.
func (c *Client) Compact(ctx context.Context, o CompactOptions, progress func(Progress)) (*Compacted, error) {
	return follow[Compacted](ctx, c, "compact", o.query(), progress)
}

// Check is Volume.Check.
func (c *Client) Check(ctx context.Context, o CheckOptions, progress func(Progress)) (*Checked, error) {
	return follow[Checked](ctx, c, "check", o.query(), progress)
}

var _ Volume = (*Client)(nil)

// send is request, of which the body is wanted.
func (c *Client) send(ctx context.Context, method, verb string, query url.Values) (io.ReadCloser, error) {
	resp, err := c.request(ctx, method, verb, query, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// post is send of a POST with a body.
func (c *Client) post(ctx context.Context, verb string, query url.Values,
	content io.Reader) (io.ReadCloser, error) {
	resp, err := c.request(ctx, http.MethodPost, verb, query, content)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// request does one request. An answer that is not 200 comes back as an error.
func (c *Client) request(ctx context.Context, method, verb string, query url.Values,
	content io.Reader) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: "ckptfs", Path: "/v1/" + verb, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), content)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, gone(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return nil, gone(ctx, err)
	}
	e := &Error{}
	if json.Unmarshal(body, e) != nil || e.Message == "" {
		e = &Error{Code: CodeInternal,
			Message: fmt.Sprintf("%s: %s: %q", verb, resp.Status, bytes.TrimSpace(body))}
	}
	return nil, e
}

func ask[T any](ctx context.Context, c *Client, method, verb string, query url.Values) (*T, error) {
	body, err := c.send(ctx, method, verb, query)
	if err != nil {
		return nil, err
	}
	return decode[T](ctx, body)
}

// decode reads an answer, and closes it.
func decode[T any](ctx context.Context, body io.ReadCloser) (*T, error) {
	defer body.Close()
	v := new(T)
	if err := json.NewDecoder(body).Decode(v); err != nil {
		return nil, gone(ctx, err)
	}
	return v, nil
}

func follow[T any](ctx context.Context, c *Client, verb string, query url.Values,
	progress func(Progress)) (*T, error) {
	return followParts[T](ctx, c, verb, query, func(*line) error { return nil }, progress)
}

func followParts[T any](ctx context.Context, c *Client, verb string, query url.Values,
	part func(*line) error, progress func(Progress)) (*T, error) {
	body, err := c.send(ctx, http.MethodPost, verb, query)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	dec := json.NewDecoder(body)
	for {
		v := new(T)
		l := line{Result: v}
		if err := dec.Decode(&l); err != nil {
			return nil, gone(ctx, err)
		}
		switch {
		case l.Error != nil:
			return nil, l.Error
		case l.Tensors != nil || l.Differences != nil || l.Entries != nil || l.Step != nil:
			if err := part(&l); err != nil {
				return nil, err
			}
		case l.Progress == nil:
			return v, nil
		case progress != nil:
			progress(*l.Progress)
		}
	}
}

// gone is the error for an answer that did not come whole.
func gone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &Error{Code: CodeUnavailable,
		Message: fmt.Sprintf("the daemon went away before it answered: %v", withoutNames(err))}
}

// WentAway reports whether the daemon ended before its answer was here.
func WentAway(err error) bool {
	var told *Error
	return errors.As(err, &told) && told.Code == CodeUnavailable
}

// withoutNames is an error of a connection without those of its ends and of the request: a socket named by a
// descriptor tells the user nothing.
func withoutNames(err error) error {
	var op *net.OpError
	var request *url.Error
	switch {
	case errors.As(err, &op):
		return op.Err
	case errors.As(err, &request):
		return request.Err
	}
	return err
}
