package share

import (
	"errors"
	"testing"

	"ckptfs/cas/remote/bucket"
)

// That one file is not there does not say that the next one is not, other failures of the remote do.
func TestUnasked(t *testing.T) {
	for err, want := range map[error]bool{
		nil:                    false,
		bucket.ErrNotFound:     false,
		bucket.ErrUnreachable:  true,
		bucket.ErrDenied:       true,
		errors.New("whatever"): true,
	} {
		if unasked(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}
