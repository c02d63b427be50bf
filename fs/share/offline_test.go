package share

import (
	"errors"
	"strings"
	"testing"
	"time"

	"ckptfs/cas/remote/bucket"
)

// Since when a remote is offline is told until it is reached; why, and what may help, is as it failed last.
func TestOffline(t *testing.T) {
	begun := time.Unix(100, 0)
	first := offline(&bucket.Error{Op: "list", Kind: bucket.ErrUnreachable}, nil, begun)
	if first.Since != begun || !strings.Contains(first.Do, "network") {
		t.Errorf("%+v", first)
	}
	then := offline(&bucket.Error{Op: "list", Kind: bucket.ErrDenied}, first, begun.Add(time.Hour))
	if then.Since != begun || !strings.Contains(then.Do, "credentials") ||
		!strings.Contains(then.Why, "denied") {
		t.Errorf("%+v", then)
	}
	if o := offline(nil, then, begun.Add(2*time.Hour)); o != nil {
		t.Errorf("%+v", o)
	}
	gone := offline(errors.Join(bucket.ErrNoBucket), nil, begun)
	if !strings.Contains(gone.Do, "bucket") {
		t.Errorf("%+v", gone)
	}
}
