package volume

import (
	"context"
	"fmt"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
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
	err := v.queue.MakeDurable(v.names.syncTree, v.syncNames)
	if err != nil {
		v.content.Count.SyncErrs.Add(1)
	}
	return err
}

// syncNames makes every name and record in the tree durable. The host's journal keeps their order, so that what was done
// before a file is made that is synced is durable with it; where there is no such journal, everything is synced.
func (v *Volume) syncNames() error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(v.names.rootFd, &st); err != nil {
		return err
	}
	if st.Type != unix.EXT4_SUPER_MAGIC && st.Type != unix.XFS_SUPER_MAGIC {
		return v.names.syncTree()
	}
	fd, err := unix.Open(v.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return v.names.syncTree()
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}

// awaitReleases waits, for a bounded time, until every writer that was closed is released.
func (v *Volume) awaitReleases(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseGrace)
	defer cancel()
	v.names.eachNode(func(n *Node) {
		f := n.file
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
