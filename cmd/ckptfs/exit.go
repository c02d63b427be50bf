package main

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

// The exit codes; exitCodesTopic documents them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotStore    = 3
	exitBusy        = 4
	exitNewer       = 5
	exitDamaged     = 6
	exitPartial     = 7
	exitMountpoint  = 8
	exitNoFUSE      = 9
	exitRecovery    = 10
	exitUnreachable = 11
	exitRefused     = 12
	exitUnfit       = 13
	exitConflict    = 14
	exitInterrupted = 130
)

func exitCodesTopic() *cobra.Command {
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
    14   others changed what was to be published, and nothing is: push --no-conflict
    130  interrupted

With --json a failure prints {"error":{"code","message","errno","do"},"exit_code"} on standard error; do is what may
help.

Called by mount(8) or umount(8), as mount.fuse.ckptfs or umount.fuse.ckptfs, it is their codes that it gives: 0 done,
1 wrong options, 8 interrupted, 32 failed.`,
	}
}

// usageError is a command line that makes no sense.
type usageError struct {
	msg string
	cmd *cobra.Command
}

func (e *usageError) Error() string { return e.msg }

// exitError gives an error an exit code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// errPartial: the files that were skipped have been named already.
var errPartial = errors.New("some files were left as they were")

// exitCode maps an error, from here or from a daemon, to the exit code.
func exitCode(err error) int {
	var (
		usage  *usageError
		own    *exitError
		locked *tree.LockedError
		others *tree.ForeignError
		cannot *host.Error
		told   *control.Error
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &own):
		return own.code
	case errors.Is(err, errPartial):
		return exitPartial
	case errors.Is(err, bucket.ErrUnfit):
		return exitUnfit
	case errors.Is(err, bucket.ErrUnreachable):
		return exitUnreachable
	case errors.Is(err, bucket.ErrDenied):
		return exitRefused
	case errors.As(err, &others), errors.As(err, &cannot):
		return exitNoFUSE
	case errors.Is(err, tree.ErrNotStore):
		return exitNotStore
	case errors.Is(err, cas.ErrNewer):
		return exitNewer
	case errors.Is(err, tree.ErrNeedsRecovery): // before what is wrong with it
		return exitRecovery
	case errors.Is(err, cas.ErrCorrupt):
		return exitDamaged
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &locked), errors.Is(err, syscall.EBUSY):
		return exitBusy
	case errors.As(err, &told) && told.Code == control.CodeBusy:
		return exitBusy
	case errors.As(err, &told) && told.Code == control.CodeUnsupported:
		return exitNotStore
	case errors.As(err, &told) && told.Code == control.CodeConflict:
		return exitConflict
	}
	return exitFailure
}

// cutOff is the error of a command, or that it was interrupted: requests that a signal ended fail as if
// nobody had answered.
func cutOff(ctx context.Context, err error) error {
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

// codes are the words that --json gives for failures that have none from the control protocol.
var codes = map[int]control.Code{exitUsage: "usage", exitNotStore: "not_store", exitBusy: control.CodeBusy,
	exitPartial:    "partial",
	exitMountpoint: "mountpoint", exitNoFUSE: "no_fuse", exitRecovery: "needs_recovery",
	exitUnreachable: "unreachable", exitRefused: "refused", exitUnfit: "unfit"}
