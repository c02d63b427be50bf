package residency

import (
	"log/slog"
	"slices"
	"time"

	"ckptfs/fs/content"
)

// held are the local copies that rules of the store hold. They are not counted against the bound.
type held struct {
	of        map[uint64]int64 // bytes, by inode
	bytes     int64
	dismissed map[uint64]bool // inodes whose copies a user had evicted: they do not come back by themselves
	missing   bool            // some went otherwise
	vain      time.Time       // until when none is asked to go, since none could
}

// add counts a copy in, and forget ends that. LRU.mu is held.
func (h *held) add(ino uint64, size int64) {
	h.bytes += size - h.of[ino]
	h.of[ino] = size
}

func (h *held) forget(ino uint64) {
	h.bytes -= h.of[ino]
	delete(h.of, ino)
}

func (l *LRU) holds(f *content.File) bool { return l.Holds != nil && l.Holds(f) }

// enterLocked counts a local copy in: as held, or against the bound.
func (l *LRU) enterLocked(f *content.File, is localCopy, holds bool) {
	ino := f.Node().Ino()
	if holds {
		l.leaveLocked(ino)
		l.held.add(ino, is.size)
		delete(l.held.dismissed, ino)
		return
	}
	l.held.forget(ino)
	l.countLocked(f, is)
}

// HeldBytes is how many bytes of packed files are resident that a rule holds.
func (l *LRU) HeldBytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held.bytes
}

// Held is how many files that is.
func (l *LRU) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held.of)
}

// Judge counts a file's local copy in as the rules have it now, or as its path is now. It reports whether the
// file is to have one, by a rule, and has none. File.mu is held.
func (l *LRU) Judge(f *content.File) (wants bool) {
	is := f.StateLocked()
	holds := l.holds(f)
	if !is.Packed() || is.Damage != nil || f.Dead() {
		return false
	}
	ino := f.Node().Ino()
	if is.Record.Hollow {
		l.mu.Lock()
		defer l.mu.Unlock()
		return holds && !l.held.dismissed[ino]
	}
	size := l.sizeOf(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, already := l.held.of[ino]; already != holds {
		used := l.of[ino].used
		if used == 0 {
			used = l.tickLocked()
		}
		l.enterLocked(f, localCopy{size, used}, holds)
		l.Wake()
	}
	return false
}

// Missed notes that a file lost its local copy. File.mu is held.
func (l *LRU) Missed(f *content.File) {
	if !l.holds(f) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held.missing = true
}

// dismiss notes that a user had a file's local copy evicted. No lock is held.
func (l *LRU) dismiss(f *content.File) {
	f.Lock()
	gone := f.StateLocked().Record.Hollow
	f.Unlock()
	if !gone || !l.holds(f) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held.dismissed[f.Node().Ino()] = true
}

// missing reports whether held copies went since it was asked last that nobody had evicted.
func (l *LRU) missing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.held.missing
	l.held.missing = false
	return was
}

// yield evicts copies that rules hold, until enough is true: there is no room for them.
func (l *LRU) yield(enough func() bool) {
	files, bytes := 0, int64(0)
	all := l.heldNow()
	if len(all) == 0 || enough() {
		return
	}
	for len(all) > 0 && !enough() {
		some := all[:min(atATime, len(all))]
		all = all[len(some):]
		n, freed := l.yieldSome(some, enough)
		files, bytes = files+n, bytes+freed
	}
	if files == 0 {
		l.mu.Lock()
		l.held.vain = l.Now().Add(mostVain)
		l.mu.Unlock()
		return
	}
	l.Report(slog.LevelWarn, "the disk is nearly full: local copies that a rule of the store holds were evicted; "+
		"their files are read from the segments, and hydrated again once there is room", "files", files, "bytes", bytes)
}

// heldNow are the inodes of the held copies, if some may go now.
func (l *LRU) heldNow() (all []candidate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Now().Before(l.held.vain) {
		return nil
	}
	for ino := range l.held.of {
		if !l.putOffLocked(ino) {
			all = append(all, candidate{ino: ino})
		}
	}
	slices.SortFunc(all, candidate.compare)
	return all
}

func (l *LRU) yieldSome(some []candidate, enough func() bool) (files int, bytes int64) {
	var sought map[uint64]*content.File
	for i, c := range some {
		if enough() {
			break
		}
		f := l.Known(c.ino)
		if f == nil && sought == nil {
			sought = l.seek(some[i:])
		}
		if f == nil {
			f = sought[c.ino]
			delete(sought, c.ino)
		}
		if f == nil {
			continue
		}
		if freed := l.evict(f); freed > 0 {
			files, bytes = files+1, bytes+freed
		}
		f.Unpin()
	}
	for _, f := range sought {
		f.Unpin()
	}
	return files, bytes
}
