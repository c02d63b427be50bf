package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"ckptfs/cas/remote/bucket"
)

// A server that hangs is left: one that does not answer after 15 seconds, one that takes nothing after 10. A
// put of which something was sent is in doubt then.
func TestHangs(t *testing.T) {
	reads := func(c net.Conn) { io.Copy(io.Discard, c) }
	for _, tc := range []struct {
		name, op string
		serve    func(net.Conn)
		after    time.Duration
		kind     error
	}{
		{"no answer", "get", reads, firstByteTime, bucket.ErrUnreachable},
		{"no answer to a put", "put", reads, firstByteTime, bucket.ErrDoubt},
		{"takes nothing", "get", func(net.Conn) {}, silence, bucket.ErrUnreachable},
		{"takes the head alone", "put", func(c net.Conn) {
			r := bufio.NewReader(c)
			for line := ""; line != "\r\n"; {
				line, _ = r.ReadString('\n')
			}
		}, silence, bucket.ErrDoubt},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				defer there.Close()
				go tc.serve(there)
				tr := New()
				tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
					return impatient{here}, nil
				}
				method, body := http.MethodGet, io.Reader(nil)
				if tc.op == "put" {
					method, body = http.MethodPut, io.LimitReader(zeros{}, 1<<20)
				}
				ctx, w := Begin(t.Context(), tc.op, "k")
				defer w.End()
				r, err := http.NewRequestWithContext(ctx, method, "http://engine.invalid/k", body)
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				out, err := Watched{tr}.RoundTrip(r)
				if err == nil {
					out.Body.Close()
					t.Fatal("it was answered")
				}
				if e := w.Unanswered(err); !errors.Is(e, tc.kind) {
					t.Errorf("%v", e)
				}
				if took := time.Since(begun); took < tc.after || took > tc.after+time.Second {
					t.Errorf("after %v", took)
				}
				here.Close()
			})
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
