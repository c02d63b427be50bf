package volume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/heads"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/state"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/share"
	"ckptfs/fs/steps"
	"ckptfs/fs/virtual"
)

// remoteState is the file of a store that has what it and its remote have in common. It may be deleted.
const remoteState = "remote.db"

// XattrRemote is the extended attribute that says what a name is to the remote: no, pending, pushed. It is
// not listed and cannot be set.
const XattrRemote = "user.ckptfs.remote"

// sharing is the connection with the remote, if the store was joined to one.
type sharing struct {
	*share.Share       // nil: there is none, or it cannot be used
	why          error // why it cannot
	names        *names.Names
}

// open connects. A mount whose remote cannot be used is as any other.
func (s *sharing) open(v *Volume, o Options) {
	s.names = v.names
	s.why = fmt.Errorf("store %s has no remote, or had none when it was mounted: "+
		"`ckptfs remote add URL %[1]s` gives it one, and the next mount uses it", v.folder.Path())
	if v.readOnly {
		s.why = fmt.Errorf("store %s is read only here: its remote is not used", v.folder.Path())
	}
	if o.Remote == nil || v.readOnly {
		return
	}
	j, err := remote.ReadJoined(v.folder.Here())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		s.Share, err = join(v, j, o)
	}
	if err == nil {
		dir := v.names.SyncDir
		v.names.SyncDir = func(fd int) error { // a name that is gone for good is noted for good
			if err := s.sync(); err != nil {
				return err
			}
			return dir(fd)
		}
	}
	if err != nil {
		s.why = fmt.Errorf("the remote of the store cannot be used: %w", err)
		v.report(slog.LevelError, "nothing is published", "reason", err)
	}
}

func join(v *Volume, j remote.Joined, o Options) (*share.Share, error) {
	b, err := o.Remote(j)
	if err != nil {
		return nil, err
	}
	db, err := state.Open(v.folder.Join(remoteState), v.id)
	if err != nil {
		return nil, err
	}
	if why := db.Recovered(); why != "" {
		v.report(slog.LevelWarn, "what was known of the remote is forgotten, and found out again", "reason", why)
	}
	if err := v.reads.join(v.folder, b, o.RemoteCache, db.File); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s, err := share.Open(share.Options{
		Reader: v.reads.reader(), Held: v.reads.held,
		Folder: v.folder, Joined: j, Bucket: b, State: kept{db}, Random: rand.Reader,
		Names: v.names, Tree: v, Steps: v.steps, Store: v.store, Pack: v.pack,
		Settle: func(ctx context.Context) error { return v.Requests().Sync(ctx, nil) },
		Kernel: func() content.Kernel { return v.content.Kernel },
		Poll:   o.RemotePoll, Now: v.now, Report: v.report,
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (s *sharing) start(publish bool) {
	if s.Share != nil {
		s.Start(publish)
	}
}

func (s *sharing) stop() {
	if s.Share != nil {
		s.Stop()
	}
}

func (s *sharing) close() error {
	if s.Share == nil {
		return nil
	}
	return s.Close()
}

// sync makes durable what is to be published as removed.
func (s *sharing) sync() error {
	if s.Share == nil {
		return nil
	}
	return s.Share.Sync()
}

// status is nil without a remote.
func (s *sharing) status() *control.RemoteStatus {
	if s.Share == nil {
		return nil
	}
	return s.Status()
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

// xattr is the value of XattrRemote.
func (s *sharing) xattr(n *names.Node, dest []byte) (int, error) {
	if s.Share == nil {
		return 0, unix.ENODATA
	}
	state, err := s.StateOf(n, n.Path())
	if err != nil {
		return 0, err
	}
	if len(dest) > 0 && len(dest) < len(state) {
		return 0, unix.ERANGE
	}
	copy(dest, state)
	return len(state), nil
}

// ensure brings the names in a folder up to date with what others published. more is what is asked for in it,
// or "".
func (s *sharing) ensure(ctx context.Context, dir *names.Node, more string) {
	switch {
	case s.Share == nil:
	case dir.Synth() != nil:
		if dir.IsVirtual() {
			s.ensureShown(ctx, path.Join(dir.Path(), more))
		}
	case dir.ID() == rootID || dir.Below(steps.Dir):
		s.Ensure(ctx, dir.Path())
	}
}

// ensureShown is ensure of what a name below .ckptfs shows.
func (s *sharing) ensureShown(ctx context.Context, p string) {
	kind, shown, _ := strings.Cut(strings.TrimPrefix(p, virtual.Name+"/"), "/")
	switch kind {
	case virtual.Best.Name():
		run, _, _ := strings.Cut(shown, "/")
		s.appear(ctx, path.Join(steps.Dir, run))
	case virtual.Tensors.Name():
		s.Ensure(ctx, shown)
		if dir := path.Dir(shown); dir != "." {
			s.Ensure(ctx, dir)
		}
	}
}

// appear has all names appear that others published at or below paths, which a command is about: what it
// looks at looks into no folder by itself. What is not reached is as it was seen last.
func (s *sharing) appear(ctx context.Context, paths ...string) {
	if s.Share == nil {
		return
	}
	for _, p := range paths {
		p = strings.Trim(path.Clean("/"+p), "/")
		if p == "" || p == virtual.Name || strings.HasPrefix(p, virtual.Name+"/") {
			s.Ensure(ctx, "")
			s.Ensure(ctx, steps.Dir)
			continue
		}
		_ = s.EnsureBelow(ctx, p) // the command meets what cannot be listed
	}
}

// rootID is the kernel's id of the mount's root.
const rootID = 1

// touch notes that a node changed which may be published.
func (s *sharing) touch(n *names.Node) {
	if s.Share != nil {
		paths := n.Paths()
		for _, p := range paths {
			s.Touched(p)
		}
		var st unix.Stat_t
		if n.File() != nil && (n.Stat(&st) != nil || uint64(st.Nlink) > uint64(len(paths))) {
			s.TouchedAll()
		}
	}
}

// touchIn is touch of a name in a folder.
func (s *sharing) touchIn(dir *names.Node, name string) {
	if s.Share != nil && dir.Synth() == nil {
		s.Touched(path.Join(dir.Path(), name))
	}
}

// removing notes that a name is about to go. done says whether it went.
func (s *sharing) removing(dir *names.Node, name string) (done func(bool)) {
	if s.Share == nil || dir.Synth() != nil {
		return func(bool) {}
	}
	p := path.Join(dir.Path(), name)
	gone := s.Removing(p)
	return func(went bool) {
		gone(went)
		s.Touched(p)
	}
}

// exchanging is removing of a name that another node gets: what a folder holds goes with it.
func (s *sharing) exchanging(dir *names.Node, name string) (done func(bool)) {
	if s.Share == nil || dir.Synth() != nil {
		return func(bool) {}
	}
	n, _, err := s.names.Child(dir, name)
	if err != nil {
		return func(bool) {}
	}
	defer n.Unpin()
	if !n.IsDir() {
		return func(bool) {}
	}
	return s.removing(dir, name)
}

// Push publishes what is complete at or below a path.
func (q *Requests) Push(
	ctx context.Context, path string, report func(control.Progress),
) (*control.Pushed, error) {
	s := &q.v.sharing
	if s.Share == nil {
		return nil, s.why
	}
	return s.Push(ctx, path, report)
}

// Fetch reads what others published since.
func (q *Requests) Fetch(ctx context.Context) (*control.Fetched, error) {
	s := &q.v.sharing
	if s.Share == nil {
		return nil, s.why
	}
	return s.Fetch(ctx)
}

// Pull makes the names at or below a path that others published.
func (q *Requests) Pull(
	ctx context.Context, path string, report func(control.Progress),
) (*control.Pulled, error) {
	s := &q.v.sharing
	if s.Share == nil {
		return nil, s.why
	}
	return s.Pull(ctx, path, report)
}

// Drop leaves to the remote what it has of the files at or below a path.
func (q *Requests) Drop(
	ctx context.Context, path string, report func(control.Progress),
) (*control.Dropped, error) {
	s := &q.v.sharing
	if s.Share == nil {
		return nil, s.why
	}
	return s.Drop(ctx, path, report)
}

// Conflicts lists the names of which the remote has several versions.
func (q *Requests) Conflicts(ctx context.Context, path string) (*control.Conflicts, error) {
	s := &q.v.sharing
	if s.Share == nil {
		return nil, s.why
	}
	return s.Conflicts(ctx, path)
}
