package chunks

import (
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/locks"
)

// maxLate bounds the entries that are late, at some 100 bytes each.
const maxLate = 4 << 20

// late are the entries of commits for which there was no room on the disk.
type late struct {
	mu      locks.RWMutex[lateLock]
	entries map[key]cas.Entry
	mark    cas.Watermark // that of the last Commit, when behind
	behind  bool          // the watermark on the disk is not that of the last Commit
}

// key is as much of a hash as the index holds.
type key [keyLen]byte

func keyOf(h *cas.Hash) key { return key(h[:keyLen]) }

// add takes the entries of a commit that full kept from the disk. The error is full when there are too many.
func (l *late) add(entries []cas.Entry, mark cas.Watermark, full error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries)+len(entries) > maxLate {
		return fmt.Errorf("%d entries wait for room on the disk: %w", len(l.entries), full)
	}
	for i := range entries {
		l.entries[keyOf(&entries[i].Hash)] = entries[i]
	}
	l.mark, l.behind = mark, true
	return nil
}

// before is what is late, and then entries.
func (l *late) before(entries []cas.Entry) []cas.Entry {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.entries) == 0 {
		return entries
	}
	all := make([]cas.Entry, 0, len(l.entries)+len(entries))
	for _, e := range l.entries {
		all = append(all, e)
	}
	return append(all, entries...)
}

func (l *late) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.entries)
	l.behind = false
}

// watermark is that of the last Commit; false when it is on the disk.
func (l *late) watermark() (mark cas.Watermark, behind bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mark, l.behind
}

// locate sets those of locs whose entry is late, and says how many these are.
func (l *late) locate(hashes []cas.Hash, locs []cas.Location) (found int) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.entries) == 0 {
		return 0
	}
	for i := range hashes {
		if e, ok := l.entries[keyOf(&hashes[i])]; ok {
			locs[i] = e.Location
			found++
		}
	}
	return found
}

// within is what is late of the prefixes in [from, to].
func (l *late) within(from, to uint16) map[key]cas.Entry {
	l.mu.RLock()
	defer l.mu.RUnlock()
	some := map[key]cas.Entry{}
	for k, e := range l.entries {
		if p := uint16(k[0])<<8 | uint16(k[1]); from <= p && p <= to {
			some[k] = e
		}
	}
	return some
}
