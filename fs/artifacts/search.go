package artifacts

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/formats/canonical"
	index "ckptfs/index/artifacts"
)

// The locks of this package.
type (
	searchLock   struct{} // search.mu: held while all files are looked at; no lock is held when it is taken
	unpackedLock struct{} // unpacked.mu: a leaf
)

func (searchLock) Rank() (int, string)   { return locks.Volume + 5, "artifacts.search.mu" }
func (unpackedLock) Rank() (int, string) { return locks.Volume + 900, "artifacts.unpacked.mu" }

// unpacked finds files that are not packed yet by their id: the last few that were asked for.
type unpacked struct {
	mu   locks.Mutex[unpackedLock]
	last []unpackedID
}

type unpackedID struct {
	id  canonical.ID
	key uint64
}

const maxUnpacked = 64

func (u *unpacked) put(id canonical.ID, key uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = slices.DeleteFunc(u.last, func(x unpackedID) bool { return x.key == key })
	if len(u.last) == maxUnpacked {
		u.last = slices.Delete(u.last, 0, 1)
	}
	u.last = append(u.last, unpackedID{id, key})
}

func (u *unpacked) get(id canonical.ID) []uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []uint64
	for _, x := range u.last {
		if x.id == id {
			out = append(out, x.key)
		}
	}
	return out
}

// Find finds a file of an id, with one pin more; ENOENT when there is none, or it was never asked for.
func (a *Artifacts) Find(ctx context.Context, id canonical.ID) (File, error) {
	f, all, err := a.at(id, a.unpacked.get(id), func(File) bool { return true })
	if f != nil || err != nil {
		return f, err
	}
	if len(all) == 0 {
		return nil, unix.ENOENT
	}
	return a.lookAtAll(ctx, id)
}

// FindFor finds a file of an id that may accepts, with one pin more; ENOENT when there is none where one is
// known to be. A caller who is refused all files of an id is not to learn that there are any: not by another
// error, and not by how long a search takes. So a search is left to the background, and a later call finds
// what it found.
func (a *Artifacts) FindFor(id canonical.ID, may func(File) bool) (File, error) {
	keys := a.unpacked.get(id)
	for _, key := range a.known.Keys() { // what may accepts may lie where the index does not know
		if k, ok := a.known.Peek(key); ok && k.id == id {
			keys = append(keys, key)
		}
	}
	f, all, err := a.at(id, keys, may)
	if f != nil || err != nil {
		return f, err
	}
	if len(all) > 0 {
		a.search.later(func(ctx context.Context) {
			if f, _ := a.lookAtAll(ctx, id); f != nil {
				f.Unpin()
			}
		})
	}
	return nil, unix.ENOENT
}

// at finds a file of an id that may accepts, with one pin more: among those with these keys, and by the
// index. Without one, all is what the index has of the id.
func (a *Artifacts) at(
	id canonical.ID, keys []uint64, may func(File) bool,
) (f File, all []index.Artifact, err error) {
	for _, key := range keys {
		f := a.o.Tree.ByKey(key)
		if f == nil {
			continue
		}
		st, err := f.State()
		if k, ok := a.known.Get(key); ok && err == nil && k.gen == st.Gen && k.id == id &&
			!st.Written && !st.Gone && may(f) {
			return f, nil, nil
		}
		f.Unpin()
	}
	return a.byKnownPath(id, may)
}

// byKnownPath finds a file of an id that may accepts by the paths that the index has, with one pin more. nil:
// what the index has is wrong, or all is empty.
func (a *Artifacts) byKnownPath(
	id canonical.ID, may func(File) bool,
) (f File, all []index.Artifact, err error) {
	raw := rawID(id)
	if err := a.o.Table.Each(&raw, func(x index.Artifact) error {
		all = append(all, x)
		return nil
	}); err != nil {
		return nil, nil, err
	}
	for _, x := range all {
		f, err := a.o.Tree.At(x.Path)
		if err != nil || f == nil {
			continue
		}
		if st, err := f.State(); err == nil && st.Manifest == x.Manifest && may(f) {
			return f, all, nil
		}
		f.Unpin()
	}
	return nil, all, nil
}

var errFound = errors.New("found")

// search bounds what searches cost: any user may cause them, by renaming a file of a known id.
type search struct {
	mu   locks.Mutex[searchLock] // held by the one that is under way
	next time.Time               // not before that

	waits atomic.Bool // one is under way, or waits, that nobody waits for
	ctx   context.Context
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// later does a search that nobody waits for, unless there is one.
func (s *search) later(do func(ctx context.Context)) {
	if s.ctx.Err() != nil || !s.waits.CompareAndSwap(false, true) {
		return
	}
	s.done.Go(func() {
		defer s.waits.Store(false)
		do(s.ctx)
	})
}

// Stop ends the search that nobody waits for. FindFor begins none any more.
func (a *Artifacts) Stop() {
	a.search.stop()
	a.search.done.Wait()
}

const (
	searchRest  = 15                    // times as long as a search took none follows
	shortSearch = 10 * time.Millisecond // a search that does not count
)

// lookAtAll looks at all files for one of an id whose known paths are wrong, and mends the index. EAGAIN:
// there was a search a short while ago.
func (a *Artifacts) lookAtAll(ctx context.Context, id canonical.ID) (File, error) {
	s := &a.search
	s.mu.Lock()
	defer s.mu.Unlock()
	// The search that was waited for may have mended it.
	f, all, err := a.byKnownPath(id, func(File) bool { return true })
	if f != nil || err != nil {
		return f, err
	}
	if len(all) == 0 {
		return nil, unix.ENOENT
	}
	start := a.o.Now()
	if start.Before(s.next) {
		return nil, unix.EAGAIN
	}
	defer func() {
		if took := a.o.Now().Sub(start); took > shortSearch {
			s.next = a.o.Now().Add(searchRest * took)
		}
	}()
	var found File
	err = a.o.Tree.Walk(ctx, func(path string, f File) error {
		st, err := f.State()
		if err != nil {
			return nil
		}
		i := slices.IndexFunc(all, func(x index.Artifact) bool { return x.Manifest == st.Manifest })
		if i < 0 {
			return nil
		}
		f.Pin()
		found = f
		all[i].Path = path
		if !a.o.ReadOnly {
			_ = a.o.Table.Put(&all[i]) // else the next one searches, too
		}
		return errFound
	})
	switch {
	case found != nil:
		return found, nil
	case err != nil:
		return nil, err
	case !a.o.ReadOnly:
		_ = a.o.Table.Drop(all)
	}
	return nil, unix.ENOENT
}
