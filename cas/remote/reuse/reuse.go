// Package reuse finds out what a remote has of files that are about to be published, so that it is not put
// again. What this store pushed or brought it knows already (writer.State). Besides it takes two looks, the
// cheaper one first:
//
//	1  versions before     files of other writers of which the caller knows: the same path, the step before
//	2  the index           files that have the same manifest, or one of the 8 largest objects (package index)
//
// A file that has the same manifest is there as a whole: its plan is read, and relied on as it is. Of others
// the plan is read for the objects that it names, and of these the footers: what they have that is stored
// alone is told to the State, as if it had been put. What is stored against others there is not told, since a
// footer does not say against what.
//
//	requests  1 for the index's head, and another for the directory of each shard, once
//	          1 for each file, and 8 where none has its manifest: blocks of the index
//	          1 for a plan, up to 8 for a file, and 1 for each object of it; 16 in all for files that are
//	          there as a whole
//
// # What is relied on
//
// Plans and footers were written by others, so they are held against what is known here: a plan of the same
// manifest has as many lists and chunks as that, and in the objects whose footers are read each record is
// where the plan has it. Who relies on objects of others trusts them to have put what their headers say.
//
// Whether an object is still there the caller finds out: what an epoch condemned is not relied on (package
// writer). The index is not asked where that is not enough (index.Reader.Covered).
package reuse

import (
	"context"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/index"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
)

// State is what is known of the remote, as in package writer.
type State interface {
	Find(hashes []cas.Hash, places []objects.Place) error
	Learn(o record.Object, records []objects.Placed) error
	Epoch() (uint32, error)
}

// Finder looks for files in a remote. It is used by one push at a time.
type Finder struct {
	Reader *fetch.Reader
	Index  *index.Reader
	State  State
	// Get reads a manifest or a list of the local store.
	Get func(h cas.Hash, dst []byte) ([]byte, error)

	mu   sync.Mutex
	seen map[record.ID]bool // objects whose footers were read
}

// File is what is looked for.
type File struct {
	Manifest cas.Hash
	// Base: it is not to be published, but what is may be stored against its records. So these are wanted one
	// by one.
	Base bool
	// Before are versions of it that others published.
	Before []*record.File
	// Asks: the index is asked, too.
	Asks bool
}

const (
	largest    = 8        // objects of a file that are looked up
	worthwhile = 1 << 20  // bytes of these, fewer than which are put rather than looked for
	mostPlans  = 8        // that are read for one file
	mostParts  = 1 << 10  // objects whose footers are read for one file
	checked    = 16       // of the objects of files that are there as a whole
	atOnce     = 8        // requests
	keptSeen   = 64 << 10 // objects
)

// Find looks for files. It has the State learn what it saw, and returns those that are there as a whole.
func (x *Finder) Find(ctx context.Context, files []File) (map[cas.Hash]*objects.Whole, error) {
	s := &search{Finder: x, whole: map[cas.Hash]*objects.Whole{}}
	if len(x.seen) > keptSeen || x.seen == nil {
		x.seen = map[record.ID]bool{}
	}
	for _, f := range files {
		t, err := s.target(f)
		if err != nil {
			return nil, err
		}
		if t != nil {
			s.todo = append(s.todo, t)
		}
	}
	if err := s.before(ctx); err != nil {
		return nil, err
	}
	if err := s.asIndexed(ctx); err != nil {
		return nil, err
	}
	return s.whole, nil
}
