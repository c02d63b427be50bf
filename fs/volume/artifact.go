package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	"ckptfs/formats/canonical"
	"ckptfs/fs/artifacts"
	"ckptfs/fs/content"
	"ckptfs/fs/idle"
	"ckptfs/fs/names"
)

// XattrArtifact is the extended attribute that a file's artifact id is read from. It is not listed and cannot
// be set.
const XattrArtifact = "user.ckptfs.artifact"

const artifactLen = 117

// artifactTree is the artifacts.Tree of a volume.
type artifactTree struct{ v *Volume }

func (t artifactTree) At(path string) (artifacts.File, error) {
	n, err := t.v.resolve(path)
	if err != nil {
		return nil, err
	}
	if n.File() == nil {
		n.Unpin()
		return nil, nil
	}
	return identified{n.File()}, nil
}

func (t artifactTree) ByKey(key uint64) artifacts.File {
	if n := t.v.names.GetPinned(content.NodeID(key)); n != nil {
		return identified{n.File()}
	}
	return nil
}

func (t artifactTree) Walk(ctx context.Context, f func(path string, file artifacts.File) error) error {
	return t.v.names.Walk(ctx, func(path string, n *names.Node) error {
		return f(path, identified{n.File()})
	})
}

// identified is a regular file as artifacts.File.
type identified struct{ f *content.File }

func (i identified) ReadAt(p []byte, off int64) (int, error) { return i.f.ReadAt(p, off) }
func (i identified) Key() uint64                             { return uint64(i.f.Node().ID()) }
func (i identified) Path() string                            { return i.f.Path() }
func (i identified) Pin()                                    { i.f.Pin() }
func (i identified) Unpin()                                  { i.f.Unpin() }

func (i identified) State() (artifacts.State, error) {
	i.f.Lock()
	defer i.f.Unlock()
	return i.stateLocked()
}

func (i identified) stateLocked() (artifacts.State, error) {
	f := i.f
	err := f.LoadLocked()
	st := f.StateLocked()
	return artifacts.State{
		Gen: st.Gen, Manifest: st.Record.Manifest,
		Written: st.Writers > 0, Damaged: st.Damage, Gone: f.Dead(),
	}, err
}

func (i identified) Use(fits func(*formats.Layout) error) (*formats.Layout, artifacts.State, error) {
	f := i.f
	f.Lock()
	defer f.Unlock()
	l, err := f.LayoutLocked()
	if err == nil {
		err = fits(l)
	}
	if err == nil && (f.StateLocked().Writers > 0 || f.MappedLocked()) {
		err = artifacts.ErrBeingWritten
	}
	if err == nil {
		err = f.UseLocked()
	}
	if err != nil {
		return nil, artifacts.State{}, err
	}
	st, err := i.stateLocked()
	return l, st, err
}

func (i identified) Done() (artifacts.State, error) {
	f := i.f
	f.Lock()
	defer f.Unlock()
	f.DoneLocked()
	return i.stateLocked()
}

// Artifact is the artifact id of a file, computed if it is not known. The error wraps canonical.ErrNoID when
// it has none.
func (v *Volume) Artifact(ctx context.Context, n *names.Node) (canonical.ID, error) {
	if n.File() == nil {
		return canonical.ID{}, fmt.Errorf("%w: no regular file", canonical.ErrNoID)
	}
	return v.artifacts.Of(ctx, identified{n.File()})
}

// artifactXattr reads XattrArtifact into dest and returns its length; with dest of length 0 nothing is
// computed.
func (v *Volume) artifactXattr(ctx context.Context, n *names.Node, dest []byte) (int, error) {
	if n.File() == nil {
		return 0, unix.ENODATA
	}
	if len(dest) == 0 {
		n.File().Lock()
		l, err := n.File().LayoutLocked()
		n.File().Unlock()
		if err == nil {
			err = artifacts.Check(l)
		}
		return artifactLen, noArtifact(n, err)
	}
	id, err := v.Artifact(ctx, n)
	if err != nil {
		return 0, noArtifact(n, err)
	}
	if len(dest) < artifactLen {
		return 0, unix.ERANGE
	}
	return copy(dest, id.String()), nil
}

// noArtifact is the errno of getxattr when Artifact failed.
func noArtifact(n *names.Node, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, canonical.ErrNoID):
		return unix.ENODATA
	case errors.Is(err, context.Canceled):
		return unix.EINTR
	}
	return n.File().OpenFailed(err)
}

// identifier computes the artifact ids of packed files that rest. The survey of the start adds those whose id
// is not in the index.
type identifier struct {
	*idle.Worker
	v *Volume
}

func newIdentifier(v *Volume, after time.Duration) *identifier {
	o := v.atRest(after)
	o.Warning = "artifact ids may be unknown until a program asks for them"
	i := &identifier{idle.NewWorker(o), v}
	b := v.artifacts.Background(
		func(ctx context.Context) error { return v.queue.Rests(ctx) },
		func(ctx context.Context) (func(), error) { return v.throttle.Turn(ctx) },
		func(what string) error { return v.content.Step(what) })
	i.One = func(ctx context.Context, f *content.File) {
		if err := b.Identify(ctx, identified{f}); err != nil {
			i.Failed(err)
		}
	}
	return i
}

// foundLocked adds a file that the survey looks at, unless its id is known. File.mu is held.
func (i *identifier) foundLocked(f *content.File) {
	if is := f.StateLocked(); is.Record.Remote {
		return // it would be read from the remote for that
	}
	if i.After >= 0 && i.v.artifacts.Wants(f.StateLocked().Record.Manifest) {
		i.Add(f)
	}
}
