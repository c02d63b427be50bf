package volume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/heads"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/state"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/share"
)

// remoteState is the file of a store that has what it and its remote have in common. It may be deleted.
const remoteState = "remote.db"

// XattrRemote is the extended attribute that says what a name is to the remote: no, pending, pushed. It is
// not listed and cannot be set.
const XattrRemote = "user.ckptfs.remote"

// sharing is the connection with the remote, if the store was joined to one.
type sharing struct {
	v *Volume
	o RemoteOptions

	share atomic.Pointer[share.Share] // nil: there is none, or it cannot be used

	mu    sync.Mutex
	why   error // why it cannot
	ended bool
}

// get is the connection; nil: there is none.
func (s *sharing) get() *share.Share { return s.share.Load() }

// open connects. A mount whose remote cannot be used is as any other.
func (s *sharing) open(v *Volume, o Options) {
	s.v, s.o = v, o.RemoteOptions
	if v.readOnly {
		s.why = fmt.Errorf("store %s is read only here: its remote is not used", v.folder.Path())
		return
	}
	dir := v.names.SyncDir
	v.names.SyncDir = func(fd int) error { // a name that is gone for good is noted for good
		if err := s.sync(); err != nil {
			return err
		}
		return dir(fd)
	}
	if err := s.connect(false); err != nil && !errors.Is(err, fs.ErrNotExist) {
		v.report(slog.LevelError, "nothing is published", "reason", err)
	}
}

// connect uses the remote that the store was joined to, unless it does. start: it publishes from here on, if
// that is wanted at all.
func (s *sharing) connect(start bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.get() != nil || s.ended || s.v.readOnly {
		return s.why
	}
	v := s.v
	j, err := remote.ReadJoined(v.folder.Here())
	if err == nil && s.o.Remote == nil {
		err = errors.New("this program opened the store without it")
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.why = fmt.Errorf("store %s has no remote: `ckptfs remote add URL %[1]s` gives it one: %w",
			v.folder.Path(), fs.ErrNotExist)
		return s.why
	case err == nil:
		var one *share.Share
		if one, err = join(v, j, s.o); err == nil {
			s.share.Store(one)
			if start {
				s.start()
			}
		}
	}
	if s.why = nil; err != nil {
		s.why = fmt.Errorf("the remote of the store cannot be used: %w", err)
	}
	return s.why
}

func join(v *Volume, j remote.Joined, o RemoteOptions) (*share.Share, error) {
	b, err := o.Remote(j)
	if err != nil {
		return nil, err
	}
	db, err := state.Open(v.folder.Join(remoteState), v.id)
	if err != nil {
		return nil, err
	}
	if err = db.Of(j.ID); err == nil {
		err = keepName(v, db, &j)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if why := db.Recovered(); why != "" {
		v.report(slog.LevelWarn, "what was known of the remote is forgotten, and found out again", "reason", why)
	}
	if err := v.reads.join(v.folder, b, &o, v.reserve.Space, db.File); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s, err := share.Open(share.Options{
		Reader: v.reads.reader(), Held: v.reads.held, Stored: v.reads.stored,
		Folder: v.folder, Joined: j, Bucket: b, State: kept{db, v.reads.moved}, Random: rand.Reader,
		Names: v.names, Tree: v, Steps: v.steps, Models: v.models, Store: v.store, Pack: v.pack,
		Wait:   v.throttle.Wait,
		Settle: func(ctx context.Context) error { return v.Requests().Sync(ctx, nil) },
		Kernel: v.content.Kernel,
		Poll:   o.RemotePoll, Now: v.now, Report: v.report, Runs: o.Runs,
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// keepName keeps to the name that the store publishes under: it has another one after it left the remote and
// joined it again.
func keepName(v *Volume, db *state.DB, j *remote.Joined) error {
	id, err := db.Identity()
	if err != nil || id.Writer == "" || id.Writer == j.Writer || j.ReadOnly() {
		return err
	}
	j.Writer = id.Writer
	return j.Write(v.folder.Path())
}

// start asks for what others publish, and publishes in the background, if that is wanted.
func (s *sharing) start() {
	one := s.get()
	if one == nil {
		return
	}
	var known []string
	if s.v.mounted.Load() != nil {
		known = names.Folders(s.v.names)
	}
	one.Start(s.o.Publish, known)
	if s.o.KeepFree > 0 {
		one.Go(s.keepFree)
	}
}

func (s *sharing) stop() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	if one := s.get(); one != nil {
		one.Stop()
	}
}

func (s *sharing) close() error {
	if one := s.get(); one != nil {
		return one.Close()
	}
	return nil
}

// sync makes durable what is to be published as removed.
func (s *sharing) sync() error {
	if one := s.get(); one != nil {
		return one.Sync()
	}
	return nil
}

// countFor is how long a status waits for the number of what is not published.
const countFor = 500 * time.Millisecond

// status is nil without a remote.
func (s *sharing) status(ctx context.Context) *control.RemoteStatus {
	one := s.get()
	if one == nil {
		return nil
	}
	st := one.Status()
	st.Manual = !s.o.Publish && s.v.mounted.Load() != nil
	ctx, cancel := context.WithTimeout(ctx, countFor)
	defer cancel()
	if n, err := one.Unpublished(ctx); err == nil {
		st.Unpublished = n
	}
	if all, err := one.Versions().Conflicts(ctx, ""); err == nil {
		n := len(all.Names)
		st.Conflicts = &n
	}
	return st
}

// kept is a share.State on the disk.
type kept struct {
	*state.DB
	moved func([]*record.File)
}

func (k kept) SetFiles(files []*record.File) error { return k.Expect(files, nil) }

// Expect has readers go on by the plans that these files have now.
func (k kept) Expect(files []*record.File, names map[string][]byte) error {
	err := k.DB.Expect(files, names)
	if err == nil {
		k.moved(files)
	}
	return err
}

func (k kept) SetHeads(all map[record.Writer]heads.Kept) error {
	set := make(map[record.Writer]state.Kept, len(all))
	for w, h := range all {
		set[w] = state.Kept(h)
	}
	return k.DB.SetHeads(set)
}

// xattr is the value of XattrRemote.
func (s *sharing) xattr(n *names.Node, dest []byte) (int, error) {
	one := s.get()
	if one == nil {
		return 0, unix.ENODATA
	}
	state, err := one.StateOf(n, n.Path())
	if err != nil {
		return 0, err
	}
	if len(dest) > 0 && len(dest) < len(state) {
		return 0, unix.ERANGE
	}
	copy(dest, state)
	return len(state), nil
}

// touch notes that a node changed which may be published.
func (s *sharing) touch(n *names.Node) {
	one := s.get()
	if one == nil {
		return
	}
	paths := n.Paths()
	for _, p := range paths {
		one.Touched(p)
	}
	var st unix.Stat_t
	if n.File() != nil && (n.Stat(&st) != nil || uint64(st.Nlink) > uint64(len(paths))) {
		one.TouchedAll()
	}
}

// changing is told before a program changes what a node has. ESTALE: its name leads to another by now.
func (s *sharing) changing(n *names.Node) error {
	one := s.get()
	if one == nil {
		return nil
	}
	for _, p := range n.Paths() {
		share.Changing(one, p)
		if n.Dead() {
			return unix.ESTALE
		}
	}
	return nil
}

// touchIn is touch of a name in a folder.
func (s *sharing) touchIn(dir *names.Node, name string) {
	if one := s.get(); one != nil && dir.Synth() == nil {
		one.Touched(path.Join(dir.Path(), name))
	}
}

// removing notes that a name is about to go. done says whether it went.
func (s *sharing) removing(dir *names.Node, name string) (done func(bool)) {
	one := s.get()
	if one == nil || dir.Synth() != nil {
		return func(bool) {}
	}
	p := path.Join(dir.Path(), name)
	gone := one.Removing(p)
	return func(went bool) {
		gone(went)
		one.Touched(p)
	}
}

// replacing is told before a program puts what has a name in the place of another.
func (s *sharing) replacing(oldName string, dir *names.Node, name string) {
	if one := s.get(); one != nil && dir.Synth() == nil {
		share.Replacing(one, oldName, path.Join(dir.Path(), name))
	}
}

// exchanging is removing of a name that another node gets: what a folder holds goes with it.
func (s *sharing) exchanging(dir *names.Node, name string) (done func(bool)) {
	if s.get() == nil || dir.Synth() != nil {
		return func(bool) {}
	}
	n, _, err := s.v.names.Child(dir, name)
	if err != nil {
		return func(bool) {}
	}
	defer n.Unpin()
	if !n.IsDir() {
		return func(bool) {}
	}
	return s.removing(dir, name)
}

// connected is the connection; without one, the error says why there is none.
func (s *sharing) connected() (*share.Share, error) {
	if one := s.get(); one != nil {
		return one, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(), s.why // it may have been made meanwhile
}

// Join uses the remote that the store was joined to since it was opened, and looks what it has.
func (q *Requests) Join(ctx context.Context) error {
	s := &q.v.sharing
	if s.get() != nil {
		return nil
	}
	if err := s.connect(true); err != nil {
		return err
	}
	one, err := s.connected()
	if err != nil {
		return err
	}
	_, err = one.Fetch(ctx)
	return err
}

// Push publishes what is complete at or below a path.
func (q *Requests) Push(
	ctx context.Context, path string, o control.PushOptions, report func(control.Progress),
) (*control.Pushed, error) {
	s, err := q.v.sharing.connected()
	if err != nil {
		return nil, err
	}
	return s.Push(ctx, path, o, report)
}

// Fetch reads what others published since.
func (q *Requests) Fetch(ctx context.Context) (*control.Fetched, error) {
	s, err := q.v.sharing.connected()
	if err != nil {
		return nil, err
	}
	return s.Fetch(ctx)
}

// Pull makes the names at or below a path that others published.
func (q *Requests) Pull(
	ctx context.Context, path string, report func(control.Progress),
) (*control.Pulled, error) {
	s, err := q.v.sharing.connected()
	if err != nil {
		return nil, err
	}
	return s.Pull(ctx, path, report)
}

// Drop leaves to the remote what it has of the files at or below a path.
func (q *Requests) Drop(
	ctx context.Context, path string, report func(control.Progress),
) (*control.Dropped, error) {
	s, err := q.v.sharing.connected()
	if err != nil {
		return nil, err
	}
	return s.Drop(ctx, path, report)
}

// Conflicts lists the names of which the remote has several versions.
func (q *Requests) Conflicts(ctx context.Context, path string) (*control.Conflicts, error) {
	s, err := q.v.sharing.connected()
	if err != nil {
		return nil, err
	}
	return s.Versions().Conflicts(ctx, path)
}

// Deleted lists the names that were deleted and may be brought back.
func (q *Requests) Deleted(ctx context.Context, path string) (*control.Deletions, error) {
	s, err := q.v.sharing.connected()
	if err != nil {
		return nil, err
	}
	return s.Deleted(ctx, path)
}

// Undelete brings back what was deleted at or below a path.
func (q *Requests) Undelete(
	ctx context.Context, path string, report func(control.Progress),
) (*control.Undeleted, error) {
	s, err := q.v.sharing.connected()
	if err != nil {
		return nil, err
	}
	return s.Undelete(ctx, path, report)
}

// RepairRemote makes heads of the remote again that were deleted or put back by hand.
func (q *Requests) RepairRemote(
	ctx context.Context, writers []string, report func(control.Progress),
) (*control.RemoteRepaired, error) {
	s, err := q.v.sharing.connected()
	if err != nil {
		return nil, err
	}
	return s.RepairRemote(ctx, writers, report)
}

// Export publishes what lies at a path once more, as a run of a name.
func (q *Requests) Export(
	ctx context.Context, name, path string, serving bool,
) (*control.Exported, error) {
	s, err := q.v.sharing.connected()
	if err != nil {
		return nil, err
	}
	return s.Export(ctx, name, path, serving)
}
