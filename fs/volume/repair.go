package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// Repair mends one part of a store that no process has open. It deletes nothing: what it cannot use it moves
// to lost+found. It may be interrupted and repeated. The error is a *LockedError when the store is open.
func Repair(
	ctx context.Context, part string, o Options, report func(control.Progress),
) (*control.Repaired, error) {
	out := &control.Repaired{Part: part, Actions: []control.Action{}}
	if !slices.Contains([]string{RepairIndex, RepairSegments, RepairTree}, part) {
		return nil, fmt.Errorf("there is no %q to repair: name index, segments or tree", part)
	}
	o.complete()
	folder, err := tree.OpenStore(o.Dir, o.Foreign)
	if err != nil {
		return nil, err
	}
	lock, err := tree.Acquire(folder, o.Now())
	if err != nil {
		folder.Close()
		return nil, err
	}
	err = maintenance.RepairClosed(folder, part, o.Now, out, report)
	err = errors.Join(err, lock.Release(lock.Before.Clean)) // as it was found: Open recovers
	if err != nil {
		folder.Close()
		return out, err
	}
	v, err := openIn(folder, o)
	if err != nil {
		return out, err
	}
	if part == RepairTree { // which moves files past what tells of that
		v.steps.Alter()
		v.steps.Changed(0)
		defer v.steps.Altered()
		err = v.passes.RepairTree(ctx, out, report)
	}
	st := v.store.Stats()
	out.Records = st.Chunks.Records + st.Lists.Records + st.Manifests.Records
	return out, errors.Join(err, v.Close(context.WithoutCancel(ctx)))
}
