package chunks

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strings"

	"ckptfs/cas"
	"ckptfs/cas/locks"
)

// bounds is how much may be late.
type bounds struct {
	entries int   // at some 100 bytes each
	bytes   int64 // of their records
	pairs   int   // of all buckets
}

var (
	// few is for a disk with room. A transaction rewrites a page of the file for nearly every entry, and
	// syncs, so there is one for many commits. A start after a crash replays that much of the segments.
	few = bounds{entries: 1 << 16, bytes: 32 << 20, pairs: 1 << 13}
	// many is for a full one.
	many = bounds{entries: 4 << 20, bytes: math.MaxInt64}
	none = bounds{entries: -1, pairs: -1}
)

// late is what the index has and the disk does not: the entries and the watermark of the last commits, and
// pairs of buckets. DB.writing is held besides mu to change it.
type late struct {
	mu      locks.RWMutex[lateLock]
	entries map[key]cas.Entry
	bytes   int64                        // of the records of the entries that were added
	mark    cas.Watermark                // that of the last Commit, when behind
	behind  bool                         // the watermark on the disk is not that of the last Commit
	pairs   map[string]map[string][]byte // by bucket and key; a nil value removes the key
	changed int                          // how many pairs were added
}

// key is as much of a hash as the index holds.
type key [keyLen]byte

func keyOf(h *cas.Hash) key { return key(h[:keyLen]) }

// add takes the entries of a commit. It is false, and takes nothing, when more would be late than may be.
func (l *late) add(entries []cas.Entry, mark cas.Watermark, most bounds) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.bytes
	for i := range entries {
		sum += int64(entries[i].Stored)
	}
	if len(l.entries)+len(entries) > most.entries || sum > most.bytes {
		return false
	}
	for i := range entries {
		l.entries[keyOf(&entries[i].Hash)] = entries[i]
	}
	l.bytes, l.mark, l.behind = sum, mark, true
	return true
}

// addPairs takes pairs of a bucket, and reports whether no more are late now than may be. undo takes them out
// again, and leaves what was late before.
func (l *late) addPairs(bucket []byte, pairs []Pair, most bounds) (undo func(), few bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pairs == nil {
		l.pairs = map[string]map[string][]byte{}
	}
	of := l.pairs[string(bucket)]
	if of == nil {
		of = map[string][]byte{}
		l.pairs[string(bucket)] = of
	}
	changed := l.changed
	before := make(map[string]lateValue, len(pairs))
	for _, p := range pairs {
		k := string(p.Key)
		if _, twice := before[k]; !twice {
			value, was := of[k]
			before[k] = lateValue{value, was}
		}
		of[k] = bytes.Clone(p.Value)
	}
	l.changed += len(pairs)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for k, v := range before {
			if v.was {
				of[k] = v.value
			} else {
				delete(of, k)
			}
		}
		l.changed = changed
	}, l.changed <= most.pairs
}

// lateValue is what was late of a key.
type lateValue struct {
	value []byte
	was   bool
}

// value is that of a key of a bucket, nil if it was removed; false when it is not late.
func (l *late) value(bucket, key []byte) (value []byte, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	value, ok = l.pairs[string(bucket)][string(key)]
	return bytes.Clone(value), ok
}

// pairsOf are those of a bucket whose key begins with a prefix, ascending.
func (l *late) pairsOf(bucket, prefix []byte) (pairs []Pair) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for k, v := range l.pairs[string(bucket)] {
		if strings.HasPrefix(k, string(prefix)) {
			pairs = append(pairs, Pair{[]byte(k), v})
		}
	}
	slices.SortFunc(pairs, func(a, b Pair) int { return bytes.Compare(a.Key, b.Key) })
	return pairs
}

// change is what one transaction writes.
type change struct {
	entries []cas.Entry
	mark    cas.Watermark
	marked  bool // there is a mark, and perhaps entries
	pairs   map[string]map[string][]byte
}

// with is what is late, and then the entries and the mark of a commit.
func (l *late) with(entries []cas.Entry, mark cas.Watermark) change {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.entries) == 0 {
		return change{entries, mark, true, l.pairs}
	}
	all := make([]cas.Entry, 0, len(l.entries)+len(entries))
	all = slices.AppendSeq(all, maps.Values(l.entries))
	return change{append(all, entries...), mark, true, l.pairs}
}

// all is what is late; false: nothing is.
func (l *late) all() (change, bool) {
	l.mu.RLock()
	behind, mark, pairs := l.behind, l.mark, l.pairs
	l.mu.RUnlock()
	if behind {
		return l.with(nil, mark), true
	}
	return change{pairs: pairs}, len(pairs) > 0
}

func (l *late) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.entries)
	l.bytes, l.behind = 0, false
	l.pairs, l.changed = nil, 0
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
