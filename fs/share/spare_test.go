package share

import (
	"errors"
	"testing"

	"ckptfs/cas/remote/bucket"
)

// Of more files than are looked for at a time, those stay that were used longest ago.
func TestOldest(t *testing.T) {
	var some []sparable
	for i := range 2 * atATime {
		some = append(some, sparable{used: int64((i * 5) % (2 * atATime))})
	}
	some = oldestOf(some)
	if len(some) != atATime {
		t.Fatalf("%d files", len(some))
	}
	for i, c := range some {
		if c.used != int64(i) {
			t.Fatalf("file %d was used at %d", i, c.used)
		}
	}
	if n := len(oldestOf(some[:3])); n != 3 {
		t.Errorf("%d of 3", n)
	}
}

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
