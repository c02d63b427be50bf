package volume

import (
	"context"
	"fmt"
	"sort"
	"time"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
)

// releaseGrace is how long Sync waits for the kernel's RELEASE of a file that a program has closed already.
const releaseGrace = 2 * time.Second

// Sync packs everything that waits, and returns when it is packed and durable. Files that are open or mapped for
// writing are left out: their turn comes when they are closed. The error names the first file that could not be packed.
func (v *Volume) Sync(ctx context.Context, report func(control.Progress)) error {
	if v.readOnly {
		return nil
	}
	select { // it queues what the last session left
	case <-v.surveyed:
	case <-ctx.Done():
		return ctx.Err()
	}
	v.awaitReleases(ctx)
	if err := v.queue.PackAll(ctx, report); err != nil {
		return err
	}
	v.models.Keep(ctx)
	for _, f := range v.failures() {
		return fmt.Errorf("%s could not be packed: %s (its bytes are safe where they are; it is tried again)", f.Path, f.Reason)
	}
	err := v.queue.MakeDurable(v.names.SyncTree, v.names.Sync)
	if err != nil {
		v.content.Count.SyncErrs.Add(1)
	}
	return err
}

// awaitReleases waits, for a bounded time, until every writer that was closed is released.
func (v *Volume) awaitReleases(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseGrace)
	defer cancel()
	v.names.Each(func(n *names.Node) {
		f := n.File()
		if f == nil {
			return
		}
		f.AwaitRelease(ctx)
	})
}

// failures lists the files that could not be packed, or evicted, by path.
func (v *Volume) failures() []control.Failure {
	type failed struct {
		f *content.File
		control.Failure
	}
	var all []failed
	add := func(f *content.File, err error, since time.Time, attempts int) {
		if err != nil {
			f.Pin()
			all = append(all, failed{f, control.Failure{Reason: err.Error(), Since: since, Attempts: attempts}})
		}
	}
	v.queue.Failures(add)
	v.hot.Failures(add)
	out := []control.Failure{}
	for _, f := range all {
		f.Failure.Path = f.f.Path()
		out = append(out, f.Failure)
		f.f.Unpin()
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out
}
