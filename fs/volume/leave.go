package volume

import (
	"context"
	"errors"
	"math"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// Leave makes every file of a store plain that no process has open: each is whole and durable in the tree
// then. What it returns names the files that it could not. bytes is how many the packed ones have, for
// progress. It may be interrupted and repeated. The error is a *LockedError when the store is open.
func Leave(
	ctx context.Context, o Options, bytes int64, report func(control.Progress),
) (*control.Left, error) {
	v, err := openToLeave(o)
	if err != nil {
		return nil, err
	}
	err = awaitSurvey(ctx, v, report) // which may mend what is looked at
	var out *control.Left
	if err == nil {
		out, err = v.passes.Leave(ctx, bytes, report)
	}
	if err == nil && report != nil {
		report(control.Progress{Phase: durablePhase})
	}
	if err == nil {
		err = unix.Syncfs(v.lock.Fd())
	}
	return out, errors.Join(err, v.Close(context.WithoutCancel(ctx)))
}

// openToLeave opens a store of which every file is about to be made plain. Nothing but that is done, so of a
// file nothing is remembered that was looked at.
func openToLeave(o Options) (*Volume, error) {
	o.Moving, o.HotSize = Moving{Still: true, Untrusted: true}, math.MaxInt64
	return Open(o)
}
