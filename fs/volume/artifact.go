package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/formats/canonical"
	"ckptfs/fs/view"
	"ckptfs/index/artifacts"
)

// An artifact id (package canonical) names the tensors of a file, whatever its format. It takes a reading of all of them, so it is
// computed when there is time (see identifier), or when somebody asks before: for the attribute XattrArtifact, or Show. It is kept with the file's node, and in the index by the
// manifest, so that it outlives the mount and holds for all files of equal bytes. The index also leads from an id to the manifests that
// have it and to a path where one was; both are looked at again before they are believed. When that path is wrong all files are looked at,
// one search at a time and for a sixteenth of the time at most: who asks meanwhile gets EAGAIN.
//
//	.ckptfs/artifacts/ID.safetensors     the tensors of an id, by name, row-major; equal ids have equal bytes
//
// It is there for the ids that are known, of files that are still there and whose tensors safetensors can express. Who may read
// that file, by the permissions of its folders too, may read it.

// XattrArtifact is the extended attribute that a file's artifact id is read from. It is not listed and cannot be set.
const XattrArtifact = "user.ckptfs.artifact"

const artifactLen = 117

// fileID is a file's artifact id. It is guarded by file.mu.
type fileID struct {
	id   canonical.ID
	gen  uint64   // gen + 1 of the bytes that have it
	kept cas.Hash // the manifest by which the index has it
}

var errBeingWritten = fmt.Errorf("%w: the file is being written", canonical.ErrNoID)

// Artifact is the artifact id of a file, computed if it is not known. The error is canonical.ErrNoID, wrapped, when it has none.
func (v *Volume) Artifact(ctx context.Context, n *Node) (canonical.ID, error) {
	if n.file == nil {
		return canonical.ID{}, fmt.Errorf("%w: no regular file", canonical.ErrNoID)
	}
	for {
		if id, ok, err := v.knownArtifact(n); ok || err != nil {
			return id, err
		}
		got, err, _ := v.identify.Do(strconv.FormatUint(uint64(n.id), 10), func() (any, error) {
			return v.computeArtifact(ctx, n, cas.Processors, func(uint64) io.ReaderAt { return n.file })
		})
		if errors.Is(err, context.Canceled) && ctx.Err() == nil {
			continue // who waited with us gave up
		}
		id, _ := got.(canonical.ID)
		return id, err
	}
}

// knownArtifact is Artifact without computing; false when that is needed.
func (v *Volume) knownArtifact(n *Node) (canonical.ID, bool, error) {
	f := n.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.load(); err != nil {
		return canonical.ID{}, false, err
	}
	switch {
	case f.damaged != nil:
		return canonical.ID{}, false, f.damaged
	case f.writers > 0:
		return canonical.ID{}, false, errBeingWritten
	case f.id.gen == f.gen+1:
		return f.id.id, true, nil
	case !f.rec.Packed():
		return canonical.ID{}, false, nil
	}
	raw, ok, err := v.artifacts.Of(f.rec.Manifest)
	if err != nil || !ok {
		return canonical.ID{}, false, nil // a damaged index is somebody else's news
	}
	f.id = fileID{id: idOf(raw), gen: f.gen + 1, kept: f.rec.Manifest}
	return f.id.id, true, nil
}

// computeArtifact reads the file's tensors, by what reader makes of its generation.
func (v *Volume) computeArtifact(ctx context.Context, n *Node, workers int, reader func(gen uint64) io.ReaderAt) (canonical.ID, error) {
	f := n.file
	f.mu.Lock()
	l, err := f.layoutNow()
	if err == nil {
		_, err = canonical.Build(l)
	}
	if err == nil && (f.writers > 0 || f.mapped()) {
		err = errBeingWritten
	}
	if err == nil {
		err = f.openSource()
	}
	if err != nil {
		f.mu.Unlock()
		return canonical.ID{}, err
	}
	f.inside++
	gen := f.gen
	f.mu.Unlock()

	id, err := canonical.Identify(ctx, reader(gen), l, workers)

	f.mu.Lock()
	f.inside--
	f.closeSources()
	if f.gen != gen {
		err = errBeingWritten
	}
	if err == nil {
		f.id = fileID{id: id, gen: gen + 1}
		if !f.rec.Packed() {
			v.unpackedIDs.put(id, n.id)
		}
	}
	f.mu.Unlock()
	if err == nil {
		v.keepArtifact(n)
	}
	return id, err
}

// keepArtifact puts the id of a packed file into the index, if it is known and not there. No lock is held.
func (v *Volume) keepArtifact(n *Node) {
	f := n.file
	f.mu.Lock()
	rec, id := f.rec, f.id
	todo := !v.readOnly && rec.Packed() && id.gen == f.gen+1 && id.kept != rec.Manifest
	if todo {
		f.id.kept = rec.Manifest
	}
	f.mu.Unlock()
	if !todo {
		return
	}
	path := n.Path()
	if err := v.artifacts.Put(&artifacts.Artifact{ID: rawID(id.id), Manifest: rec.Manifest, Path: path}); err != nil {
		v.report(slog.LevelWarn, "an artifact id was not kept", "path", path, "reason", err)
	}
}

func rawID(id canonical.ID) (raw [64]byte) {
	copy(raw[copy(raw[:], id.Index[:]):], id.Data[:])
	return raw
}

func idOf(raw [64]byte) (id canonical.ID) {
	copy(id.Data[:], raw[copy(id.Index[:], raw[:]):])
	return id
}

// artifactXattr reads XattrArtifact into dest and returns its length; with dest of length 0 nothing is computed.
func (v *Volume) artifactXattr(ctx context.Context, n *Node, dest []byte) (int, error) {
	if n.file == nil {
		return 0, unix.ENODATA
	}
	if len(dest) == 0 {
		n.file.mu.Lock()
		l, err := n.file.layoutNow()
		n.file.mu.Unlock()
		if err == nil {
			_, err = canonical.Build(l)
		}
		return artifactLen, v.noArtifact(n, err)
	}
	id, err := v.Artifact(ctx, n)
	if err != nil {
		return 0, v.noArtifact(n, err)
	}
	if len(dest) < artifactLen {
		return 0, unix.ERANGE
	}
	return copy(dest, id.String()), nil
}

// noArtifact is what getxattr answers when Artifact failed.
func (v *Volume) noArtifact(n *Node, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, canonical.ErrNoID):
		return unix.ENODATA
	case errors.Is(err, context.Canceled):
		return unix.EINTR
	}
	return n.file.openFailed(err)
}

// unpackedIDs finds files that are not packed yet by their id: the last few that were asked for.
type unpackedIDs struct {
	mu   sync.Mutex
	last []unpackedID
}

type unpackedID struct {
	id   canonical.ID
	node NodeID
}

const maxUnpackedIDs = 64

func (u *unpackedIDs) put(id canonical.ID, n NodeID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = slices.DeleteFunc(u.last, func(x unpackedID) bool { return x.node == n })
	if len(u.last) == maxUnpackedIDs {
		u.last = slices.Delete(u.last, 0, 1)
	}
	u.last = append(u.last, unpackedID{id, n})
}

func (u *unpackedIDs) get(id canonical.ID) []NodeID {
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []NodeID
	for _, x := range u.last {
		if x.id == id {
			out = append(out, x.node)
		}
	}
	return out
}

// withArtifact finds a file of an id, with one reference more; ENOENT when there is none, or it was never asked for.
func (v *Volume) withArtifact(ctx context.Context, id canonical.ID) (*Node, error) {
	for _, nid := range v.unpackedIDs.get(id) {
		n := v.names.tab.getRef(nid)
		if n == nil {
			continue
		}
		n.file.mu.Lock()
		ok := n.file.id.gen == n.file.gen+1 && n.file.id.id == id && n.file.writers == 0 && !n.isDead()
		n.file.mu.Unlock()
		if ok {
			return n, nil
		}
		n.unref(1)
	}
	n, known, err := v.byKnownPath(id)
	if n != nil || err != nil {
		return n, err
	}
	if len(known) == 0 {
		return nil, unix.ENOENT
	}
	return v.searchArtifact(ctx, id)
}

// byKnownPath finds a file of an id by the paths that the index has, with one reference more. nil: what the index has is wrong, or
// known is empty.
func (v *Volume) byKnownPath(id canonical.ID) (n *Node, known []artifacts.Artifact, err error) {
	raw := rawID(id)
	if err := v.artifacts.Each(&raw, func(a artifacts.Artifact) error { known = append(known, a); return nil }); err != nil {
		return nil, nil, err
	}
	for _, a := range known {
		n, err := v.resolve(a.Path)
		if err != nil {
			continue
		}
		if n.file != nil && v.manifestOf(n) == a.Manifest {
			return n, known, nil
		}
		n.unref(1)
	}
	return nil, known, nil
}

var errFound = errors.New("found")

// knownArtifacts are the ids that were computed, and the search for files of them.
type knownArtifacts struct {
	*artifacts.Table
	search artifactSearch
}

// artifactSearch bounds what searches cost: anybody may cause them, by renaming a file of a known id.
type artifactSearch struct {
	mu   sync.Mutex // held by the one that is under way
	next time.Time  // not before that
}

const (
	searchRest  = 15                    // times as long as a search took none follows
	shortSearch = 10 * time.Millisecond // a search that does not count
)

// searchArtifact looks at all files for one of an id whose known paths are wrong, and mends the index. EAGAIN: there was a search a
// short while ago.
func (v *Volume) searchArtifact(ctx context.Context, id canonical.ID) (*Node, error) {
	s := &v.artifacts.search
	s.mu.Lock()
	defer s.mu.Unlock()
	n, known, err := v.byKnownPath(id) // whom we waited for may have mended it
	if n != nil || err != nil {
		return n, err
	}
	if len(known) == 0 {
		return nil, unix.ENOENT
	}
	start := v.now()
	if start.Before(s.next) {
		return nil, unix.EAGAIN
	}
	defer func() {
		if took := v.now().Sub(start); took > shortSearch {
			s.next = v.now().Add(searchRest * took)
		}
	}()
	var found *Node
	err = v.walk(ctx, "", func(path string, n *Node) error {
		m := v.manifestOf(n)
		i := slices.IndexFunc(known, func(a artifacts.Artifact) bool { return a.Manifest == m })
		if i < 0 {
			return nil
		}
		n.ref()
		found = n
		known[i].Path = path
		if !v.readOnly {
			_ = v.artifacts.Put(&known[i]) // else the next one searches, too
		}
		return errFound
	})
	switch {
	case found != nil:
		return found, nil
	case err != nil:
		return nil, err
	case !v.readOnly:
		_ = v.artifacts.Drop(known)
	}
	return nil, unix.ENOENT
}

// hasArtifact reports whether the bytes that a file has now are known to have an id. f.mu is held.
func (v *Volume) hasArtifact(f *file, id canonical.ID) bool {
	if f.id.gen == f.gen+1 {
		return f.id.id == id
	}
	if !f.rec.Packed() {
		return false
	}
	raw, ok, err := v.artifacts.Of(f.rec.Manifest)
	return err == nil && ok && raw == rawID(id)
}

// manifestOf is a file's manifest; zero unless it is packed.
func (v *Volume) manifestOf(n *Node) cas.Hash {
	n.file.mu.Lock()
	defer n.file.mu.Unlock()
	if n.file.load() != nil {
		return cas.Hash{}
	}
	return n.file.rec.Manifest
}

// artifactDir is .ckptfs/artifacts.
type artifactDir struct{}

func (artifactDir) lookup(v *Volume, name string) (virtual, error) {
	stem, _ := strings.CutSuffix(name, view.Suffix)
	id, err := canonical.ParseID(stem)
	if err != nil || len(stem) == len(name) {
		return virtual{}, unix.ENOENT
	}
	n, err := v.withArtifact(context.Background(), id)
	if err != nil {
		return virtual{}, err
	}
	w, err := v.tensorView(n, func(f *file) bool { return v.hasArtifact(f, id) })
	w.stat = func(v *Volume) (Attr, error) { return v.statReachable(n) }
	return w, err
}

// tensorView is a safetensors file of the tensors of n, whose reference it takes; ENOENT when still says that n is not what it was, with f.mu held.
func (v *Volume) tensorView(n *Node, still func(f *file) bool) (virtual, error) {
	f := n.file
	f.mu.Lock()
	l, err := f.layoutNow()
	gen := f.gen
	if err == nil && !still(f) {
		err = unix.ENOENT // written just now
	}
	f.mu.Unlock()
	var plan *view.View
	if err == nil {
		plan, err = view.Safetensors(l.Regions, l.Tensors)
	}
	if err != nil {
		n.unref(1)
		if errors.Is(err, view.ErrNoView) {
			err = unix.ENOENT
		}
		return virtual{}, err
	}
	return virtual{key: fileKey{n, gen}, src: n, view: &viewNode{src: n, gen: gen, size: plan.Size(), end: math.MaxInt64, plan: plan}}, nil
}

// statArtifacts: only the owner of the mount's root may list the ids, which tell what files hold that others may not read.
func statArtifacts(v *Volume) (Attr, error) {
	a, err := v.Stat(v.names.root)
	a.Mode = unix.S_IFDIR | 0o511
	return a, err
}

func (artifactDir) list(v *Volume) ([]DirEntry, error) {
	var out []DirEntry
	last := ""
	err := v.artifacts.Each(nil, func(a artifacts.Artifact) error {
		if name := idOf(a.ID).String() + view.Suffix; name != last {
			out = append(out, DirEntry{Name: name, Mode: unix.S_IFREG})
			last = name
		}
		return nil
	})
	return out, err
}

// statReachable describes a file for a name outside of its folder: it may be read by whom the folders above it let through, too.
func (v *Volume) statReachable(n *Node) (Attr, error) {
	a, err := v.Stat(n)
	if err != nil {
		return a, err
	}
	mode := a.Mode & 0o444
	for _, dir := range v.foldersOf(n) {
		d, err := v.Stat(dir)
		dir.unref(1)
		if err != nil {
			mode = 0
			continue
		}
		all := d.Mode&0o011 == 0o011
		if !all {
			mode &^= 0o004
		}
		if !all && (d.GID != a.GID || d.Mode&0o010 == 0) {
			mode &^= 0o040
		}
		if !all && d.UID != a.UID {
			mode &^= 0o400
		}
	}
	a.Mode = unix.S_IFREG | mode
	return a, nil
}

// foldersOf is the directories above a node, by one of its names, with a reference to each; not the root.
func (v *Volume) foldersOf(n *Node) []*Node {
	v.names.ns.RLock()
	defer v.names.ns.RUnlock()
	v.names.tab.mu.Lock()
	defer v.names.tab.mu.Unlock()
	var out []*Node
	for len(n.names) > 0 && n.names[0].dir != nil && n.names[0].dir != v.names.root {
		n = n.names[0].dir
		n.refs++
		out = append(out, n)
	}
	return out
}

// forgetArtifacts takes from the index what is known of manifests that are gone.
func (v *Volume) forgetArtifacts() error {
	var all []artifacts.Artifact
	if err := v.artifacts.Each(nil, func(a artifacts.Artifact) error { all = append(all, a); return nil }); err != nil {
		return err
	}
	if err := v.artifacts.EachNone(func(m cas.Hash) error { all = append(all, artifacts.Artifact{Manifest: m}); return nil }); err != nil {
		return err
	}
	hashes := make([]cas.Hash, len(all))
	for i := range all {
		hashes[i] = all[i].Manifest
	}
	locs := make([]cas.Location, len(all))
	if err := v.store.Locate(hashes, locs); err != nil {
		return err
	}
	var gone []artifacts.Artifact
	for i := range all {
		if locs[i] == (cas.Location{}) {
			gone = append(gone, all[i])
		}
	}
	return v.artifacts.Drop(gone)
}
