package index

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"

	"ckptfs/cas"
)

// maxDeferred bounds the entries that a Deferring keeps, at some 100 bytes each.
const maxDeferred = 4 << 20

// Deferring is an index on a disk that may be full. A commit for which there is no room is kept in memory and written
// with the next one that succeeds. Nothing is lost by that: the records are durable in their segments, and the watermark
// on the disk stays before them, so that the next start replays them. It is safe for concurrent use.
//
// Only Remove, upon which a sweep destroys records, insists on the disk.
type Deferring struct {
	db     *DB
	commit func([]cas.Entry, cas.Watermark) error // db's

	writing sync.Mutex // held over commits

	mu   sync.RWMutex
	late map[key]cas.Entry // not on the disk
	mark cas.Watermark     // theirs, when there are any or behind
	// behind: the watermark on the disk is not that of the last Commit.
	behind bool
}

// key is as much of a hash as the index holds.
type key [keyLen]byte

func keyOf(h *cas.Hash) key { return key(h[:keyLen]) }

// Defer returns db as a Deferring. Close db, and not before Flush was called.
func Defer(db *DB) *Deferring {
	return &Deferring{db: db, commit: db.Commit, late: map[key]cas.Entry{}}
}

// Locate is DB.Locate.
func (d *Deferring) Locate(hashes []cas.Hash, locs []cas.Location) error {
	if err := d.db.Locate(hashes, locs); err != nil {
		return err
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if len(d.late) == 0 {
		return nil
	}
	for i := range hashes {
		if e, ok := d.late[keyOf(&hashes[i])]; ok {
			locs[i] = e.Location
		}
	}
	return nil
}

// Commit is DB.Commit, but for a full disk: then the entries are kept. The error is the disk's when there are too many.
func (d *Deferring) Commit(entries []cas.Entry, mark cas.Watermark) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	err := d.write(entries, mark)
	if !noSpace(err) {
		return err
	}
	for i := range entries {
		if lerr := checkLocation(entries[i].Location); lerr != nil {
			return lerr
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.late)+len(entries) > maxDeferred {
		return fmt.Errorf("%d entries wait for room on the disk: %w", len(d.late), err)
	}
	for i := range entries {
		d.late[keyOf(&entries[i].Hash)] = entries[i]
	}
	d.mark, d.behind = mark, true
	return nil
}

// write commits what is late together with entries. d.writing is held.
func (d *Deferring) write(entries []cas.Entry, mark cas.Watermark) error {
	d.mu.RLock()
	if len(d.late) > 0 {
		all := make([]cas.Entry, 0, len(d.late)+len(entries))
		for _, e := range d.late {
			all = append(all, e)
		}
		entries = append(all, entries...)
	}
	d.mu.RUnlock()
	if err := d.commit(entries, mark); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.late)
	d.behind = false
	return nil
}

// Flush writes what is late. The error is the disk's as long as it is full.
func (d *Deferring) Flush() error {
	d.writing.Lock()
	defer d.writing.Unlock()
	return d.flush()
}

func (d *Deferring) flush() error {
	d.mu.RLock()
	behind, mark := d.behind, d.mark
	d.mu.RUnlock()
	if !behind {
		return nil
	}
	return d.write(nil, mark)
}

// Late is how many entries wait for room on the disk.
func (d *Deferring) Late() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.late)
}

// Remove is DB.Remove, after everything that is late was written; the error is the disk's when there is no room, and
// nothing is removed then.
func (d *Deferring) Remove(entries []cas.Entry) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	if err := d.flush(); err != nil {
		return err
	}
	return d.db.Remove(entries)
}

// Watermark is the mark of the last Commit.
func (d *Deferring) Watermark() (cas.Watermark, error) {
	d.mu.RLock()
	mark, behind := d.mark, d.behind
	d.mu.RUnlock()
	if behind {
		return mark, nil
	}
	return d.db.Watermark()
}

// ForEach is DB.ForEach, but for the order; entries that are late may come with their full hash.
func (d *Deferring) ForEach(from, to uint16, f func(e cas.Entry) error) error {
	late := map[key]cas.Entry{}
	d.mu.RLock()
	for k, e := range d.late {
		if p := uint16(k[0])<<8 | uint16(k[1]); from <= p && p <= to {
			late[k] = e
		}
	}
	d.mu.RUnlock()
	err := d.db.ForEach(from, to, func(e cas.Entry) error {
		if _, ok := late[keyOf(&e.Hash)]; ok {
			return nil
		}
		return f(e)
	})
	for _, e := range late {
		if err != nil {
			break
		}
		err = f(e)
	}
	return err
}

// noSpace knows a full disk also by its text: where bbolt makes its file longer it keeps no more of the error.
func noSpace(err error) bool {
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) || err != nil && strings.HasSuffix(err.Error(), full.Error()) {
			return true
		}
	}
	return false
}
