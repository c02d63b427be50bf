package bucket_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"ckptfs/cas/remote/bucket"
)

// What a person may do about it is told by what the engine says, not by the kind alone.
func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string // a part of it; "" is none
	}{
		{&bucket.Error{Kind: bucket.ErrDenied, Status: 403, Code: "SignatureDoesNotMatch"}, "AWS_SECRET_ACCESS_KEY"},
		{&bucket.Error{Kind: bucket.ErrDenied, Status: 404, Code: "XAdminUserNotFound"}, "does not know the access key"},
		{&bucket.Error{Kind: bucket.ErrDenied, Status: 400, Code: "ExpiredToken"}, "expired"},
		{&bucket.Error{Kind: bucket.ErrRefused, Status: 301, Code: "PermanentRedirect"}, "--region"},
		{&bucket.Error{Kind: bucket.ErrDenied, Status: 403, Code: "AccessDenied"}, "remote policy"},
		{&bucket.Error{Kind: bucket.ErrDenied, Status: 403, Message: "403 Forbidden"}, ""},
		{&bucket.Error{Kind: bucket.ErrDenied, Err: io.EOF}, "no credentials were found"},
		{&bucket.Error{Kind: bucket.ErrDenied, Message: "over plain HTTP nothing is written"}, ""},
		{fmt.Errorf("this store only reads: %w", bucket.ErrDenied), ""},
		{fmt.Errorf("s3://b: %w", &bucket.Error{Kind: bucket.ErrNoBucket, Status: 404}), "make the bucket"},
		{&bucket.Error{Kind: bucket.ErrFull, Status: 507}, "prune --remote"},
		{bucket.ErrUnreachable, "network"},
		{bucket.ErrConflict, ""},
		{errors.New("other"), ""},
		{nil, ""},
	} {
		if got := bucket.Advice(c.err); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
