package residency

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"ckptfs/fs/content"
	"ckptfs/fs/throttle"
)

// Shrink evicts until the bound holds and the disk is not short. Files that are in use are passed over, and
// those that a rule holds as long as others can go.
func (l *LRU) Shrink() {
	for _, f := range l.wanted() {
		l.evict(f)
		l.dismiss(f)
		f.Unpin()
	}
	if l.Bytes() == 0 && l.HeldBytes() == 0 {
		return
	}
	short := l.Short()
	l.free(func() bool { return short || l.over() })
	if short {
		l.yield(func() bool { return !l.Short() })
	}
}

// Free evicts the least recently opened files that nothing uses, until enough is true; last of all those that
// a rule holds.
func (l *LRU) Free(enough func() bool) {
	l.free(func() bool { return !enough() })
	l.yield(enough)
}

// wanted are the files that are to go whatever room there is, each with one Pin more.
func (l *LRU) wanted() (all []*content.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ino, n := range l.notes {
		if n.wanted && !l.putOffLocked(ino) {
			n.file.Pin()
			all = append(all, n.file)
		}
	}
	return all
}

const (
	// atATime is how many files are looked for at a time. Each is pinned meanwhile.
	atATime = 4096
	// more is the share of the files, and of Max, that is evicted beyond what has to go, where files had to
	// be looked for: to look through the tree for each new file would take longer than to pack it.
	more = 16
	// Where all that could be found stays resident, it is looked for again as many times as long later as it
	// took, and no later than mostVain.
	vainRest = 20
	mostVain = time.Minute
)

// vain is what is known once all files were looked for, and need still said that some are to go: those that
// were used at up to used are not looked for again before until.
type vain struct {
	used  int64
	until time.Time
}

// vainly is what of that holds now.
func (l *LRU) vainly() vain {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.Now().Before(l.vain.until) {
		return vain{}
	}
	return l.vain
}

// allTried notes that files up to last were looked for since start, and too few could be evicted.
func (l *LRU) allTried(last candidate, start time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Now()
	l.vain = vain{last.used, now.Add(min(max(diskWatch, vainRest*now.Sub(start)), mostVain))}
}

// free evicts for as long as need says, least recently used first.
func (l *LRU) free(need func() bool) {
	var freed, enough int64 // bytes; until enough, and as long as spare files may go, need is not asked
	spare := 0
	start, vain, looked := l.Now(), l.vainly(), false
	for at := (candidate{}); need(); {
		some := l.after(at)
		if len(some) == 0 {
			if looked {
				l.allTried(at, start)
			}
			return
		}
		at = some[len(some)-1]
		var sought map[uint64]*content.File
		for i, c := range some {
			if (freed >= enough || spare == 0) && !need() {
				break
			}
			f := l.Known(c.ino)
			if f == nil && c.used <= vain.used {
				continue
			}
			if f == nil && sought == nil {
				sought, looked = l.seek(some[i:]), true
				enough, spare = freed+l.Max/more, l.number()/more
			}
			if f == nil {
				f = sought[c.ino]
				delete(sought, c.ino)
			}
			if f != nil {
				freed += l.evict(f)
				spare = max(0, spare-1)
				f.Unpin()
			}
		}
		for _, f := range sought {
			f.Unpin()
		}
	}
}

// seek finds files in the tree, each with one Pin more. One that is not there, or was moved meanwhile, is not
// counted any more, until it is used.
func (l *LRU) seek(some []candidate) map[uint64]*content.File {
	wanted := map[uint64]bool{}
	for _, c := range some {
		wanted[c.ino] = true
	}
	sought := make(map[uint64]*content.File, len(some))
	err := l.Seek(l.stopped, func(ino uint64) bool { return wanted[ino] }, func(f *content.File) bool {
		if ino := f.Node().Ino(); wanted[ino] && sought[ino] == nil {
			f.Pin()
			sought[ino] = f
		}
		return len(sought) < len(wanted)
	})
	if err != nil {
		if l.stopped.Err() == nil {
			l.Report(slog.LevelWarn, "files that are to be evicted could not all be found", "reason", err)
		}
		return sought
	}
	for _, c := range some {
		if sought[c.ino] == nil {
			l.lost(c)
		}
	}
	return sought
}

// lost forgets a file that was not used since it was chosen.
func (l *LRU) lost(c candidate) {
	l.mu.Lock()
	same := l.of[c.ino].used == c.used
	l.mu.Unlock()
	if same {
		l.Remove(c.ino)
	}
}

// evict evicts a file unless it is in use, and returns the bytes.
func (l *LRU) evict(f *content.File) int64 {
	ino := f.Node().Ino()
	before := l.size(ino)
	if _, err := f.Evict(); err != nil {
		l.failed(f, err)
		return 0
	}
	f.Lock()
	if !f.StateLocked().Resident() {
		l.Remove(ino) // as a rule this was done
	}
	f.Unlock()
	return before - l.size(ino)
}

// number is how many files are counted in.
func (l *LRU) number() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.of)
}

// size is how many bytes of an inode are counted in.
func (l *LRU) size(ino uint64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, _ := l.sizeLocked(ino)
	return size
}

// failed notes that the bytes of a file cannot be evicted, and puts the next attempt off.
func (l *LRU) failed(f *content.File, err error) {
	l.Count.EvictErrs.Add(1)
	l.Report(slog.LevelWarn, "eviction failed; it is tried again", "path", f.Path(), "reason", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, is := l.sizeLocked(f.Node().Ino()); !is {
		return
	}
	n := l.noteLocked(f)
	if n.failed == nil {
		n.failed = &failure{since: l.Now()}
	}
	n.failed.err = fmt.Errorf("its resident bytes could not be evicted: %w", err)
	n.failed.retry = l.Now().Add(throttle.Backoff(n.failed.attempts))
	n.failed.attempts++
}

// putOffLocked reports whether a file is not to be tried now.
func (l *LRU) putOffLocked(ino uint64) bool {
	n := l.notes[ino]
	return n != nil && n.failed != nil && l.Now().Before(n.failed.retry)
}

// candidate is a file by its inode, as it was used when that was looked at.
type candidate struct {
	used int64
	ino  uint64
}

func (c candidate) compare(d candidate) int {
	return cmp.Or(cmp.Compare(c.used, d.used), cmp.Compare(c.ino, d.ino))
}

// candidates are the next files to go: behind from, all is newer than the last of them that is not here and
// was counted when they were chosen. What was used since is newer than all of them.
type candidates struct {
	from   candidate
	oldest []candidate // oldest first
}

// after are the oldest files that come after one, oldest first.
func (l *LRU) after(at candidate) []candidate {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := &l.next
	n.oldest = slices.DeleteFunc(n.oldest, func(c candidate) bool { return l.of[c.ino].used != c.used })
	for {
		i, _ := slices.BinarySearchFunc(n.oldest, at, func(c, at candidate) int {
			return cmp.Or(c.compare(at), -1) // behind it
		})
		if i == len(n.oldest) || at.compare(n.from) < 0 {
			*n, i = candidates{at, l.chooseLocked(at)}, 0
		}
		some := slices.DeleteFunc(slices.Clone(n.oldest[i:]), func(c candidate) bool {
			return l.putOffLocked(c.ino)
		})
		if len(some) > 0 || len(n.oldest) == 0 {
			return some
		}
		at = n.oldest[len(n.oldest)-1]
	}
}

// chooseLocked chooses the oldest files that come after one, but for those that are put off.
func (l *LRU) chooseLocked(at candidate) []candidate {
	var some []candidate
	cut := func() {
		slices.SortFunc(some, candidate.compare)
		some = some[:min(len(some), atATime)]
	}
	for ino, is := range l.of {
		c := candidate{is.used, ino}
		if c.compare(at) <= 0 || l.putOffLocked(ino) {
			continue
		}
		if some = append(some, c); len(some) == 2*atATime {
			cut()
		}
	}
	cut()
	return some
}
