// Package exit has the exit codes of the commands, and the errors that carry one.
package exit

import (
	"context"
	"errors"
	"syscall"

	"github.com/spf13/cobra"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cmd/ckptfs/host"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// The codes; Topic documents them.
const (
	OK          = 0
	Failure     = 1
	Usage       = 2
	NotStore    = 3
	Busy        = 4
	Newer       = 5
	Damaged     = 6
	Partial     = 7
	Mountpoint  = 8
	NoFUSE      = 9
	Recovery    = 10
	Unreachable = 11
	Refused     = 12
	Unfit       = 13
	Conflict    = 14
	Interrupted = 130
)

// Topic is the help page of the codes.
func Topic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long: `Exit codes, the same for every command, mounted or not:

    0    done
    1    failed; the message says why
    2    wrong command line
    3    the path is in no ckptfs mount and no store, or the store is not mounted
    4    in use: the store is locked by another process, or the mount is busy
    5    the store was written by a newer version of ckptfs
    6    damaged data was met, or found by check
    7    done in part: some files were left as they were, each is named
    8    the mountpoint cannot be one: missing, no folder, not empty, in the store or above it
    9    nothing can be mounted here: no /dev/fuse, no fusermount3, or no permission; or the store is another user's,
         and --foreign was not given
    10   the store was not closed in order, and may only be read: mount it once for writing
    11   the object store of a remote cannot be reached
    12   it refuses: no credentials, or they do not allow it
    13   it is not fit for a remote, or lacks what it had acknowledged
    14   others changed what was to be published, and nothing is: push --no-conflict; or what was to be read:
         cat --if-unchanged
    130  interrupted

With --json a failure prints {"error":{"code","message","errno","do"},"exit_code"} on standard error; do is what may
help.

Called by mount(8) or umount(8), as mount.fuse.ckptfs or umount.fuse.ckptfs, it is their codes that it gives: 0 done,
1 wrong options, 8 interrupted, 32 failed.`,
	}
}

// UsageError is a command line that makes no sense.
type UsageError struct {
	message string
	Command *cobra.Command
}

// Wrong is the error of a command line.
func Wrong(cmd *cobra.Command, message string) error { return &UsageError{message, cmd} }

func (e *UsageError) Error() string { return e.message }

// coded gives an error an exit code of its own.
type coded struct {
	code int
	error
}

// With gives an error an exit code.
func With(code int, err error) error { return &coded{code, err} }

func (e *coded) Unwrap() error { return e.error }

// ErrPartial: the files that were skipped have been named already.
var ErrPartial = errors.New("some files were left as they were")

// Code maps an error, from here or from a daemon, to the exit code.
func Code(err error) int {
	var (
		usage  *UsageError
		own    *coded
		locked *tree.LockedError
		others *tree.ForeignError
		cannot *host.Error
		told   *control.Error
	)
	switch {
	case err == nil:
		return OK
	case errors.As(err, &usage):
		return Usage
	case errors.As(err, &own):
		return own.code
	case errors.Is(err, ErrPartial):
		return Partial
	case errors.Is(err, bucket.ErrUnfit):
		return Unfit
	case errors.Is(err, bucket.ErrUnreachable):
		return Unreachable
	case errors.Is(err, bucket.ErrDenied):
		return Refused
	case errors.As(err, &others), errors.As(err, &cannot):
		return NoFUSE
	case errors.Is(err, tree.ErrNotStore):
		return NotStore
	case errors.Is(err, cas.ErrNewer):
		return Newer
	case errors.Is(err, tree.ErrNeedsRecovery): // before what is wrong with it
		return Recovery
	case errors.Is(err, cas.ErrCorrupt):
		return Damaged
	case errors.Is(err, context.Canceled):
		return Interrupted
	case errors.As(err, &locked), errors.Is(err, syscall.EBUSY):
		return Busy
	case errors.As(err, &told) && told.Code == control.CodeBusy:
		return Busy
	case errors.As(err, &told) && told.Code == control.CodeUnsupported:
		return NotStore
	case errors.As(err, &told) && told.Code == control.CodeConflict:
		return Conflict
	}
	return Failure
}

// CutOff is the error of a command, or that it was interrupted: requests that a signal ended fail as if
// nobody had answered.
func CutOff(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	for _, kind := range []error{bucket.ErrUnreachable, bucket.ErrDoubt, bucket.ErrCut} {
		if errors.Is(err, kind) {
			return ctx.Err()
		}
	}
	return err
}

// Words are the words that --json gives for failures that have none from the control protocol.
var Words = map[int]control.Code{Usage: "usage", NotStore: "not_store", Busy: control.CodeBusy,
	Partial:    "partial",
	Mountpoint: "mountpoint", NoFUSE: "no_fuse", Recovery: "needs_recovery",
	Unreachable: "unreachable", Refused: "refused", Unfit: "unfit"}
