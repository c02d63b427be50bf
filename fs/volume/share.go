package volume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/heads"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/state"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/share"
)

// remoteState is the file of a store that has what it and its remote have in common. It may be deleted.
const remoteState = "remote.db"

// openShare connects the store with its remote, if it was joined to one. Without it the mount is as any other.
func (v *Volume) openShare(o Options) {
	if o.Remote == nil || v.readOnly {
		return
	}
	j, err := remote.ReadJoined(v.folder.Here())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		v.share, err = v.shareWith(j, o.Remote)
	}
	if err != nil {
		v.unshared = fmt.Errorf("the remote of the store cannot be used: %w", err)
		v.report(slog.LevelError, "nothing is published", "reason", v.unshared)
	}
}

func (v *Volume) shareWith(j remote.Joined, open func(remote.Joined) (bucket.Bucket, error)) (
	*share.Share, error) {
	b, err := open(j)
	if err != nil {
		return nil, err
	}
	db, err := state.Open(v.folder.Join(remoteState), v.id)
	if err != nil {
		return nil, err
	}
	s, err := share.Open(share.Options{
		Folder: v.folder, Joined: j, Bucket: b, State: kept{db}, Random: rand.Reader,
		Names: v.names, Tree: v, Steps: v.steps, Store: v.store, Pack: v.pack,
		Settle: func(ctx context.Context) error { return v.Requests().Sync(ctx, nil) },
		Kernel: func() content.Kernel { return v.content.Kernel },
		Now:    v.now, Report: v.report,
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// kept is a share.State on the disk.
type kept struct{ *state.DB }

func (k kept) SetHeads(all map[record.Writer]heads.Kept) error {
	set := make(map[record.Writer]state.Kept, len(all))
	for w, h := range all {
		set[w] = state.Kept(h)
	}
	return k.DB.SetHeads(set)
}

// sharing is the connection with the remote, or why there is none.
func (q *Requests) sharing() (*share.Share, error) {
	switch {
	case q.v.share != nil:
		return q.v.share, nil
	case q.v.unshared != nil:
		return nil, q.v.unshared
	}
	return nil, fmt.Errorf("store %s has no remote, or was mounted before it had one: `ckptfs remote add URL %[1]s` gives it one, and the next mount uses it", q.v.folder.Path())
}

// touch notes that a node changed which may be published.
func (v *Volume) touch(n *names.Node) {
	if v.share != nil {
		v.share.Touched(n.Path())
	}
}

// touchIn is touch of a name in a folder, and of the folder.
func (v *Volume) touchIn(dir *names.Node, name string) {
	if v.share != nil && dir.Synth() == nil {
		v.share.Touched(dir.Path() + "/" + name)
	}
}

// removing notes that a name is about to go. done says that it went, or that this failed.
func (v *Volume) removing(dir *names.Node, name string) (done func()) {
	if v.share == nil || dir.Synth() != nil {
		return func() {}
	}
	p := dir.Path() + "/" + name
	gone := v.share.Removing(p)
	return func() {
		gone()
		v.share.Touched(p)
	}
}

// Push publishes what is complete at or below a path.
func (q *Requests) Push(
	ctx context.Context, path string, report func(control.Progress),
) (*control.Pushed, error) {
	s, err := q.sharing()
	if err != nil {
		return nil, err
	}
	return s.Push(ctx, path, report)
}

// Fetch reads what others published since.
func (q *Requests) Fetch(ctx context.Context) (*control.Fetched, error) {
	s, err := q.sharing()
	if err != nil {
		return nil, err
	}
	return s.Fetch(ctx)
}

// Pull makes the names at or below a path that others published.
func (q *Requests) Pull(
	ctx context.Context, path string, report func(control.Progress),
) (*control.Pulled, error) {
	s, err := q.sharing()
	if err != nil {
		return nil, err
	}
	return s.Pull(ctx, path, report)
}

// Conflicts lists the names of which the remote has several versions.
func (q *Requests) Conflicts(ctx context.Context, path string) (*control.Conflicts, error) {
	s, err := q.sharing()
	if err != nil {
		return nil, err
	}
	return s.Conflicts(ctx, path)
}
