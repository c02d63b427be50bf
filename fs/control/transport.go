package control

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// transport is an http.RoundTripper that calls a handler in this process. Answers are streamed: the handler
// runs while its answer is read, and closing the body cuts it off as a closed connection would.
type transport struct {
	h      http.Handler
	ending context.Context // of all requests
	end    context.CancelFunc

	mu      sync.Mutex // held to add to running, and to set closed
	closed  bool
	running sync.WaitGroup // handlers
}

func newTransport(h http.Handler) *transport {
	t := &transport{h: h}
	t.ending, t.end = context.WithCancel(context.Background())
	return t
}

// close cuts off all requests, and waits for their ends: who closes the store then closes it under nobody.
func (t *transport) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.end()
	t.running.Wait()
}

func (t *transport) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return net.ErrClosed
	}
	t.running.Add(1)
	return nil
}

// RoundTrip returns once the handler has begun its answer. When the request is cancelled it is the handler
// that ends, so that nothing runs in the volume any more once the caller has its answer.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.begin(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(r.Context())
	pr, pw := io.Pipe()
	w := &responseWriter{header: make(http.Header), body: pw, started: make(chan struct{})}
	ended := make(chan struct{})
	stop := context.AfterFunc(t.ending, func() {
		cancel()
		_ = pr.CloseWithError(net.ErrClosed) // it may have no reader
	})
	go func() {
		defer t.running.Done()
		defer stop()
		defer close(ended)
		defer pw.Close()
		t.h.ServeHTTP(w, r.WithContext(ctx))
		w.WriteHeader(http.StatusOK) // for a handler that wrote nothing
	}()
	<-w.started
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)),
		StatusCode:    w.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        w.sent,
		Body:          &responseBody{pr, cancel, ended},
		ContentLength: -1,
		Request:       r,
	}, nil
}

// responseBody cuts the handler off when it is closed, and waits for its end.
type responseBody struct {
	*io.PipeReader
	cancel context.CancelFunc
	ended  <-chan struct{}
}

func (b *responseBody) Close() error {
	b.cancel()
	err := b.PipeReader.Close()
	<-b.ended
	return err
}

// responseWriter is the handler's side of the pipe. status and sent are set once, before started is closed.
type responseWriter struct {
	header  http.Header
	body    *io.PipeWriter
	once    sync.Once
	status  int
	sent    http.Header
	started chan struct{}
}

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.started)
	})
}

func (w *responseWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush sends the header; the body is not buffered.
func (w *responseWriter) Flush() { w.WriteHeader(http.StatusOK) }
