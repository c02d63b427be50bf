package volume

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
)

// durablePhase is what a command does last.
const durablePhase = "making it durable"

// reportEvery is how often it is reported how far the survey is.
const reportEvery = 100 * time.Millisecond

// releaseGrace is how long Sync waits for the kernel's RELEASE of a file that a program has closed already.
const releaseGrace = 2 * time.Second

// Sync packs all files that wait, and returns when they are packed and durable. Files that are open or mapped
// for writing are left out, and packed after they are closed. The error names the first file that could not
// be packed; all others are durable then. It also names one that may have lost bytes, since the disk did not
// take them, until it was written again. report may be nil.
func (q *Requests) Sync(ctx context.Context, report func(control.Progress)) error {
	if q.v.readOnly {
		return nil
	}
	if err := awaitSurvey(ctx, q.v, report); err != nil { // it queues what the last session left
		return err
	}
	q.v.awaitReleases(ctx)
	if err := q.v.queue.PackAll(ctx, report); err != nil {
		return err
	}
	if report != nil {
		report(control.Progress{Phase: durablePhase})
	}
	q.v.models.Settle(ctx)
	var errs []error
	err := q.v.queue.MakeDurable(q.v.durability.syncTree, q.v.durability.syncNames)
	if err == nil && q.v.content.Missed() {
		err = q.v.durability.syncTree()
	}
	if err != nil {
		q.v.content.Count.SyncErrs.Add(1)
		errs = append(errs, err)
	}
	_ = q.v.index.Flush() // nothing hangs on it: a start reads what the index lacks from the segments
	lost := q.v.durability.lost()
	safe := "its bytes are safe where they are; "
	if lost != nil || len(errs) > 0 {
		safe = ""
	}
	for _, f := range failures(q.v.queue.Failures) {
		errs = append(errs, fmt.Errorf("%s could not be packed: %s (%sit is tried again)", f.Path, f.Reason, safe))
		break
	}
	return errors.Join(append(errs, lost)...)
}

// awaitSurvey waits until the start has looked at every file. report may be nil.
func awaitSurvey(ctx context.Context, v *Volume, report func(control.Progress)) error {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-v.surveyed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if report != nil {
				report(control.Progress{Phase: "looking at names", DoneFiles: int(v.survey.Looked())})
			}
		}
	}
}

// awaitReleases waits, for a bounded time, until every writer that was closed is released.
func (v *Volume) awaitReleases(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseGrace)
	defer cancel()
	v.names.Each(func(n *names.Node) {
		if f := n.File(); f != nil {
			f.AwaitRelease(ctx)
		}
	})
}

// eachFailure calls f, under a lock, with each file that a part failed to pack or to evict. err is nil of a
// file that the part only waits for.
type eachFailure func(f func(file *content.File, err error, since time.Time, attempts int))

// failures lists the files that the parts failed to pack or to evict, by path.
func failures(parts ...eachFailure) []control.Failure {
	type failed struct {
		f *content.File
		control.Failure
	}
	var all []failed
	for _, each := range parts {
		each(func(f *content.File, err error, since time.Time, attempts int) {
			if err != nil {
				f.Pin()
				why := control.Failure{Reason: err.Error(), Since: since, Attempts: attempts}
				all = append(all, failed{f, why})
			}
		})
	}
	out := []control.Failure{}
	for _, f := range all {
		f.Failure.Path = f.f.Path()
		out = append(out, f.Failure)
		f.f.Unpin()
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out
}
