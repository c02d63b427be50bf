package volume

import (
	"context"
	"errors"
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
	defer v.throttle.Wait()()
	p := v.packer
	p.retryAll()

	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cond.Broadcast()
	})
	defer stop()
	start := p.snapshot()
	p.mu.Lock()
	for (len(p.queue) > 0 || len(p.busy) > 0) && ctx.Err() == nil && !p.stopping {
		if report != nil {
			pr := v.progress(start)
			p.mu.Unlock()
			report(pr)
			p.mu.Lock()
			if len(p.queue) == 0 && len(p.busy) == 0 {
				break
			}
		}
		p.cond.Wait()
	}
	pr := v.progress(start)
	p.mu.Unlock()
	if report != nil {
		report(pr)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	v.models.Keep(ctx)
	for _, f := range v.failures() {
		return fmt.Errorf("%s could not be packed: %s (its bytes are safe where they are; it is tried again)", f.Path, f.Reason)
	}
	err := v.syncPublished()
	if err != nil {
		v.content.Count.SyncErrs.Add(1)
	}
	return err
}

// syncPublished makes durable what was packed or found to stay plain since the last time. A record that a power cut
// takes back costs nothing but packing the file once more, so nobody waits for this but who asks.
func (v *Volume) syncPublished() error {
	p := v.packer
	p.mu.Lock()
	nodes, all, any := p.plain, p.morePlain, p.published || p.morePlain || len(p.plain) > 0
	p.plain, p.morePlain, p.published = map[*content.File]bool{}, false, false
	p.mu.Unlock()
	var errs []error
	for n := range nodes {
		if !all && !n.Dead() {
			errs = append(errs, n.Sync())
		}
		n.Unpin()
	}
	switch {
	case all:
		errs = append(errs, v.names.syncTree())
	case any:
		errs = append(errs, v.syncNames())
	}
	return errors.Join(errs...)
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

func (p *packer) snapshot() progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// progress since start; packer.mu is held. Sizes of what waits are not known yet: files count.
func (v *Volume) progress(start progress) control.Progress {
	p := v.packer
	done := p.done.files - start.files
	return control.Progress{
		DoneBytes: p.done.bytes - start.bytes,
		DoneFiles: done, TotalFiles: done + len(p.queue) + len(p.busy),
	}
}

// failures lists the files that could not be packed, or whose bytes in place could not be given up, by path.
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
	p := v.packer
	p.mu.Lock()
	for f, d := range p.delayed {
		add(f, d.err, d.since, d.attempts)
	}
	p.mu.Unlock()
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
