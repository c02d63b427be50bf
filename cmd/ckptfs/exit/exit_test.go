package exit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/writer"
	"ckptfs/cmd/ckptfs/remote"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// Every failure has the same code here as when it came from a daemon.
func TestCodes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code int
	}{
		{nil, OK},
		{errors.New("odd"), Failure},
		{syscall.ENOSPC, Failure},
		{syscall.ENOENT, Failure},
		{syscall.EBUSY, Busy},
		{cas.ErrNewer, Newer},
		{&cas.ChunkError{Err: cas.ErrCorrupt}, Damaged},
		{context.Canceled, Interrupted},
		{writer.ErrRolledBack, Unfit},
		{&remote.UnfitError{}, Unfit},
		{&control.Error{Code: control.CodeBusy, Message: "m"}, Busy},
		{&control.Error{Code: control.CodeUnsupported, Message: "m"}, NotStore},
		{&control.Error{Code: control.CodeConflict, Message: "m"}, Conflict},
		{&control.Error{Code: control.CodeUnavailable, Message: "m"}, Failure},
	} {
		if got := Code(tc.err); got != tc.code {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.code)
		}
		if tc.err == nil {
			continue
		}
		if got := Code(control.AsError(fmt.Errorf("wrapped: %w", tc.err))); got != tc.code {
			t.Errorf("%v from a daemon: %d, want %d", tc.err, got, tc.code)
		}
	}
	for _, tc := range []struct {
		err  error
		code int
	}{
		{&tree.LockedError{}, Busy},
		{fmt.Errorf("x: %w", tree.ErrNotStore), NotStore},
		{Wrong(nil, ""), Usage},
		{ErrPartial, Partial},
		{With(42, cas.ErrCorrupt), 42},
	} {
		if got := Code(tc.err); got != tc.code {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.code)
		}
	}
	text := Topic().Long
	for _, code := range []int{OK, Failure, Usage, NotStore, Busy, Newer, Damaged, Partial, Interrupted} {
		if !strings.Contains(text, fmt.Sprintf("\n    %d ", code)) {
			t.Errorf("exit code %d is not documented", code)
		}
	}
}
