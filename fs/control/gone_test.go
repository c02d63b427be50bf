package control

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
)

// What a daemon that ends leaves of an answer is told without the names of sockets and requests.
func TestGone(t *testing.T) {
	for _, err := range []error{
		io.EOF,
		&url.Error{Op: "Post", URL: "http://ckptfs/v1/sync", Err: io.EOF},
		&net.OpError{Op: "read", Net: "unix", Addr: &net.UnixAddr{Name: "/proc/self/fd/5/s"}, Err: io.EOF},
		&url.Error{Op: "Post", URL: "http://ckptfs/v1/sync", Err: &net.OpError{Op: "read", Err: io.EOF}},
	} {
		err := gone(t.Context(), err)
		if want := "the daemon went away before it answered: EOF"; err.Error() != want {
			t.Errorf("%q, not %q", err, want)
		}
		if !WentAway(fmt.Errorf("not unmounted: %w", err)) {
			t.Errorf("%v: it went away", err)
		}
	}
	if WentAway(nil) || WentAway(errors.New("x")) || WentAway(&Error{Code: CodeBusy}) {
		t.Error("no daemon went away")
	}
}
