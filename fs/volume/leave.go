package volume

import (
	"context"
	"errors"
	"math"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// Leave makes every file of a store plain that no process has open: each is whole and durable in the tree
// then. What it returns names the files that it could not. bytes is how many it is about to write, for
// progress. It may be interrupted and repeated. The error is a *LockedError when the store is open.
func Leave(
	ctx context.Context, o Options, bytes int64, report func(control.Progress),
) (*control.Left, error) {
	o.Moving, o.HotSize = Moving{Still: true, Untrusted: true}, math.MaxInt64
	v, err := Open(o)
	if err != nil {
		return nil, err
	}
	<-v.surveyed // which may mend what is looked at
	out, err := v.passes.Leave(ctx, bytes, report)
	if err == nil {
		err = unix.Syncfs(v.lock.Fd())
	}
	return out, errors.Join(err, v.Close(context.WithoutCancel(ctx)))
}
