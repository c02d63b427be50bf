package store

import (
	"errors"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/locks"
)

// indexer is the index, and the one that takes its place when it proves damaged.
//
// index, renewals and err change under appender.flushing, passes.reshaping and mu together; a goroutine that
// holds one of these, shared or not, may read them. floor changes under appender.flushing.
type indexer struct {
	renewal func(reason error) (Locator, error) // Options.NewIndex

	mu       locks.RWMutex[indexerLock] // held while the index is made again, shared over Locator.Locate
	index    Locator
	renewals int // how often it was
	// floor is what no watermark passes, so that the next start looks again at what the disk did not read of
	// the segments behind it, to which what was committed there may have been late. Zero: nothing.
	floor cas.Watermark
	err   error // the last time failed

	doubting locks.Mutex[doubtingLock] // held while the index is looked through
	sound    time.Time                 // when it last was
}

// maxRenewals is how many damaged indexes in a row one operation bears.
const maxRenewals = 3

// below is mark, or the floor if that comes before it. appender.flushing is held.
func (x *indexer) below(mark cas.Watermark) cas.Watermark {
	if x.floor != (cas.Watermark{}) && x.floor.Before(mark) {
		return x.floor
	}
	return mark
}

// generation counts the indexes.
func (x *indexer) generation() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.renewals
}

// locateOnce asks the index, and also says which one it asked.
func (x *indexer) locateOnce(hashes []cas.Hash, locs []cas.Location) (gen int, err error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.err != nil {
		return x.renewals, x.err
	}
	return x.renewals, x.index.Locate(hashes, locs)
}

// renewable reports whether err, of the index, is a reason to make a new one.
func (x *indexer) renewable(err error) bool {
	return x.renewal != nil && errors.Is(err, cas.ErrCorrupt)
}

// examine has the index look itself through, and also says which one did.
func (x *indexer) examine() (gen int, err error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if c, ok := x.index.(interface{ Check() error }); ok {
		err = c.Check()
	}
	return x.renewals, err
}

// forEach calls f with the entries of the index, which is not made again meanwhile.
func (x *indexer) forEach(f func(cas.Entry) error) error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.index.ForEach(0, 0xffff, f)
}

// now is the index. It may be replaced at any time, but one that is asked still answers.
func (x *indexer) now() Locator {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.index
}
