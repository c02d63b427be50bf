// Package proven knows what was seen of records since the process began: which of them were read, or written,
// and were what their hashes name; and which could not be read.
//
// A disk may lose what it has, and says so when it is read. So before a local copy is dropped, which may be
// the last good one, the records of its bytes have to be proven. One that is suspect is stored
// afresh when its content comes again.
//
// What is proven takes 16 bytes a record and some room between them, in a file without a name where there are
// very many (package spilled).
package proven

import (
	"sync/atomic"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
	"ckptfs/cas/spilled"
)

// knownLock is Known.mu, a leaf.
type knownLock struct{}

func (knownLock) Rank() (int, string) { return locks.Store + 990, "Known.mu" }

// maxSuspects bounds Known.suspect.
const maxSuspects = 1 << 16

// Known is what is known of the records of one store. It may be used by several goroutines at once.
type Known struct {
	doubts  atomic.Int64 // of suspect: mostly there are none, and no lock is taken for a record
	mu      locks.Mutex[knownLock]
	suspect map[cas.Hash]struct{}
	good    *spilled.Set
}

// New knows nothing. dir is where the file would be made; nil: it stays in memory.
func New(dir *disk.Folder) *Known {
	return &Known{suspect: map[cas.Hash]struct{}{}, good: spilled.NewSet(dir)}
}

func setKey(h cas.Hash) [16]byte { return [16]byte(h[:16]) }

// Proves notes that the record of h was read and is what its hash names.
func (k *Known) Proves(h cas.Hash) { k.good.Add(setKey(h)) }

// Proven reports whether the record of h was proven, or written, and not found damaged since. It may say that
// it was not of one that was.
func (k *Known) Proven(h cas.Hash) bool { return k.good.Has(setKey(h)) }

// Suspects notes that the record of h cannot be read, or is gone.
func (k *Known) Suspects(h cas.Hash) {
	if h.IsZero() {
		return
	}
	k.good.Remove(setKey(h))
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.suspect) < maxSuspects {
		k.suspect[h] = struct{}{}
		k.doubts.Store(int64(len(k.suspect)))
	}
}

// Suspect reports whether the record of h was found so, and was not written afresh since.
func (k *Known) Suspect(h cas.Hash) bool {
	if k.doubts.Load() == 0 {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	_, is := k.suspect[h]
	return is
}

// Wrote notes that a record of h was written and is on the disk.
func (k *Known) Wrote(h cas.Hash) {
	k.good.Add(setKey(h))
	if k.doubts.Load() == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.suspect, h)
	k.doubts.Store(int64(len(k.suspect)))
}
