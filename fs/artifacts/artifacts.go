// Package artifacts knows the identity of tensors: which artifact id a file has, and which file has an
// artifact id.
//
// An artifact id (package formats/canonical) names the tensors of a file, whatever its format. It takes a
// reading of all of them, so it is computed when there is time (Background), or when a command asks before
// (Of). It is kept with the file's generation in memory, and in the index by the manifest, so that it
// outlives the mount and holds for all files of equal bytes. The index also leads from an id to the manifests
// that have it and to a path where one was; both are looked at again before they are believed. When that path
// is wrong all files are looked at, one search at a time and for a sixteenth of the time at most: a caller
// that asks meanwhile gets EAGAIN, or, if it may not see all files (FindFor), ENOENT at once.
//
// Its state is bounded: the ids of the files that were asked for last, the ids of the last few that are not
// packed, and when the next search may begin. The leaf locks of the first two are taken under a file's lock;
// that of a search is held while all files are looked at, and no lock is held when it is taken.
package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/canonical"
	index "ckptfs/index/artifacts"
)

// ErrBeingWritten: the file has no id as long as it is open for writing. It is a canonical.ErrNoID.
var ErrBeingWritten = fmt.Errorf("%w: the file is being written", canonical.ErrNoID)

// State is what a file is at a moment.
type State struct {
	Gen      uint64   // counts whatever may change the bytes
	Manifest cas.Hash // zero unless packed
	Written  bool     // it is open for writing
	Damaged  error    // why it cannot be read
	Gone     bool     // no name leads to it
}

// File is a regular file, as its id is computed from it. No lock of its own is held when a method is called.
type File interface {
	io.ReaderAt   // its present bytes, while it is in use
	Key() uint64  // tells it apart from all other files of this process's life
	Path() string // by one of its names
	Pin()         // keeps it known until as many Unpins
	Unpin()       //
	State() (State, error)
	// Use makes its bytes readable until Done is called. fits is asked before whether its layout will do. The
	// error is ErrBeingWritten when its bytes may change: it is open for writing, or mapped so.
	Use(fits func(*formats.Layout) error) (*formats.Layout, State, error)
	Done() (State, error)
}

// Tree is where files are found. What its methods return has one pin more, which the caller takes back.
type Tree interface {
	At(path string) (File, error) // nil: no regular file
	ByKey(key uint64) File        // nil: it is not known any more
	// Walk calls f with all files. The error of f ends it.
	Walk(ctx context.Context, f func(path string, file File) error) error
}

// Options say what Artifacts works with.
type Options struct {
	Table    *index.Table
	Tree     Tree
	ReadOnly bool // the table may not be changed
	Now      func() time.Time
	Log      func(level slog.Level, msg string, args ...any)
}

// Artifacts are the ids of the files of a tree. It may be used by several goroutines at once.
type Artifacts struct {
	o        Options
	known    *lru.Cache[uint64, known] // by File.Key
	computes singleflight.Group        // by File.Key
	unpacked unpacked
	search   search
}

// known is the id of a generation of a file's bytes.
type known struct {
	id   canonical.ID
	gen  uint64
	kept cas.Hash // the manifest by which the index has it
}

// maxKnown bounds the files whose ids are remembered, some 150 bytes each.
const maxKnown = 4096

// New makes Artifacts that remember nothing but what is in the table.
func New(o Options) *Artifacts {
	a := &Artifacts{o: o}
	a.search.ctx, a.search.stop = context.WithCancel(context.Background())
	a.known, _ = lru.New[uint64, known](maxKnown) // the size is positive
	return a
}

// Of is the artifact id of a file, computed if it is not known. The error is canonical.ErrNoID, wrapped, when
// it has none.
func (a *Artifacts) Of(ctx context.Context, f File) (canonical.ID, error) {
	for {
		if id, ok, err := a.Known(f); ok || err != nil {
			return id, err
		}
		got, err, _ := a.computes.Do(strconv.FormatUint(f.Key(), 10), func() (any, error) {
			return a.compute(ctx, f, cas.Processors, func(uint64) io.ReaderAt { return f })
		})
		if errors.Is(err, context.Canceled) && ctx.Err() == nil {
			continue // the caller that computed it was cancelled, and this one was not
		}
		id, _ := got.(canonical.ID)
		return id, err
	}
}

// Known is Of without computing; false when that is needed.
func (a *Artifacts) Known(f File) (canonical.ID, bool, error) {
	st, err := f.State()
	switch {
	case err != nil:
		return canonical.ID{}, false, err
	case st.Damaged != nil:
		return canonical.ID{}, false, st.Damaged
	case st.Written:
		return canonical.ID{}, false, ErrBeingWritten
	}
	if k, ok := a.known.Get(f.Key()); ok && k.gen == st.Gen {
		return k.id, true, nil
	}
	if st.Manifest.IsZero() {
		return canonical.ID{}, false, nil
	}
	raw, ok, err := a.o.Table.Of(st.Manifest)
	if err != nil || !ok {
		return canonical.ID{}, false, nil // a damaged index is reported elsewhere
	}
	k := known{id: idOf(raw), gen: st.Gen, kept: st.Manifest}
	a.known.Add(f.Key(), k)
	return k.id, true, nil
}

// Has reports whether the bytes of a generation of a file are known to have an id. The manifest is zero
// unless it is packed. It takes leaf locks only.
func (a *Artifacts) Has(key, gen uint64, manifest cas.Hash, id canonical.ID) bool {
	if k, ok := a.known.Get(key); ok && k.gen == gen {
		return k.id == id
	}
	if manifest.IsZero() {
		return false
	}
	raw, ok, err := a.o.Table.Of(manifest)
	return err == nil && ok && raw == rawID(id)
}

// Check returns an error, canonical.ErrNoID, if a layout's tensors have no id.
func Check(l *formats.Layout) error {
	_, err := canonical.Build(l)
	return err
}

// compute reads the file's tensors, by what reader makes of its generation.
func (a *Artifacts) compute(ctx context.Context, f File, workers int,
	reader func(gen uint64) io.ReaderAt) (canonical.ID, error) {
	l, st, err := f.Use(Check)
	if err != nil {
		return canonical.ID{}, err
	}
	id, err := canonical.Identify(ctx, reader(st.Gen), l, workers)
	now, _ := f.Done()
	if now.Gen != st.Gen {
		err = ErrBeingWritten
	}
	if err == nil {
		a.known.Add(f.Key(), known{id: id, gen: st.Gen})
		if now.Manifest.IsZero() {
			a.unpacked.put(id, f.Key())
		}
		a.Keep(f)
	}
	return id, err
}

// Keep puts the id of a packed file into the index, if it is known and not there.
func (a *Artifacts) Keep(f File) {
	k, ok := a.known.Get(f.Key())
	if !ok || a.o.ReadOnly {
		return
	}
	st, err := f.State()
	if err != nil || st.Manifest.IsZero() || k.gen != st.Gen || k.kept == st.Manifest {
		return
	}
	k.kept = st.Manifest
	a.known.Add(f.Key(), k)
	path := f.Path()
	if err := a.o.Table.Put(&index.Artifact{ID: rawID(k.id), Manifest: st.Manifest, Path: path}); err != nil {
		a.o.Log(slog.LevelWarn, "an artifact id was not kept", "path", path, "reason", err)
	}
}

// Each calls f with every id that is in the index, once for each file that had it, equal ones one after the
// other.
func (a *Artifacts) Each(f func(canonical.ID) error) error {
	return a.o.Table.Each(nil, func(x index.Artifact) error { return f(idOf(x.ID)) })
}

// Forget takes from the index what is known of manifests that are gone: that locate finds nowhere.
func (a *Artifacts) Forget(locate func([]cas.Hash, []cas.Location) error) error {
	var all []index.Artifact
	if err := a.o.Table.Each(nil, func(x index.Artifact) error {
		all = append(all, x)
		return nil
	}); err != nil {
		return err
	}
	if err := a.o.Table.EachNone(func(m cas.Hash) error {
		all = append(all, index.Artifact{Manifest: m})
		return nil
	}); err != nil {
		return err
	}
	hashes := make([]cas.Hash, len(all))
	for i := range all {
		hashes[i] = all[i].Manifest
	}
	locs := make([]cas.Location, len(all))
	if err := locate(hashes, locs); err != nil {
		return err
	}
	var gone []index.Artifact
	for i := range all {
		if locs[i] == (cas.Location{}) {
			gone = append(gone, all[i])
		}
	}
	return a.o.Table.Drop(gone)
}

func rawID(id canonical.ID) (raw [64]byte) {
	copy(raw[copy(raw[:], id.Index[:]):], id.Data[:])
	return raw
}

func idOf(raw [64]byte) (id canonical.ID) {
	copy(id.Data[:], raw[copy(id.Index[:], raw[:]):])
	return id
}
