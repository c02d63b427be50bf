package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ckptfs/fs/control"
	"ckptfs/fs/maintenance"
	"ckptfs/fs/tree"
)

// The parts of a store that Repair mends.
const (
	RepairIndex    = maintenance.RepairIndex
	RepairSegments = maintenance.RepairSegments
	RepairTree     = maintenance.RepairTree
)

// Repair mends one part of a store that nobody has open. What it cannot use it moves to lost+found; it
// deletes nothing. It may be interrupted and repeated. The error is a *LockedError when the store is mounted.
func Repair(ctx context.Context, part string, o Options, report func(control.Progress)) (*control.Repaired, error) {
	out := &control.Repaired{Part: part, Actions: []control.Action{}}
	if !slices.Contains([]string{RepairIndex, RepairSegments, RepairTree}, part) {
		return nil, fmt.Errorf("there is no %q to repair: index, segments or tree", part)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	lock, err := tree.Acquire(o.Dir, o.Now())
	if err != nil {
		return nil, err
	}
	// As it was found: recovery is Open's.
	err = errors.Join(maintenance.RepairClosed(o.Dir, part, o.Now, out, report), lock.Release(lock.Before.Clean))
	if err != nil {
		return out, err
	}
	v, err := Open(o)
	if err != nil {
		return out, err
	}
	if part == RepairTree {
		err = v.passes.RepairTree(ctx, out, report)
	}
	st := v.store.Stats()
	out.Records = st.Chunks.Records + st.Lists.Records + st.Manifests.Records
	return out, errors.Join(err, v.Close(context.WithoutCancel(ctx)))
}
