package remote

import (
	"fmt"
	"strings"
	"testing"

	"ckptfs/cas/remote/bucket"
)

// Credentials that may not even read are no reader's.
func TestHintReader(t *testing.T) {
	for op, hints := range map[string]bool{"put": true, "get": false} {
		err := hintReader(fmt.Errorf("s3://b: %w", &bucket.Error{Op: op, Kind: bucket.ErrDenied}))
		if got := strings.Contains(err.Error(), "--reader"); got != hints {
			t.Errorf("%s: %v", op, err)
		}
	}
}
