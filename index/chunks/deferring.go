package chunks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"

	"ckptfs/cas"
)

// maxDeferred bounds the entries that a Deferring keeps, at some 100 bytes each.
const maxDeferred = 4 << 20

// Deferring is an index that outlives a full disk and its own damage. It is safe for concurrent use.
//
// A commit for which there is no room is kept in memory and written with the next one that succeeds. Nothing is lost by
// that: the records are durable in their segments, and the watermark on the disk stays before them, so that the next start
// replays them. Only Remove, upon which a sweep destroys records, insists on the disk.
//
// Renew puts the file aside and goes on with an empty one.
type Deferring struct {
	path string
	opt  Options

	writing sync.Mutex // held over commits; taken before the others

	swap sync.RWMutex // held to change db
	db   *DB          // nil: there is no room for a file
	// commit is db.Commit, but for tests.
	commit func(db *DB, entries []cas.Entry, mark cas.Watermark) error
	reason string

	mu   sync.RWMutex
	late map[key]cas.Entry // not on the disk
	mark cas.Watermark     // that of the last Commit, when behind
	// behind: the watermark on the disk is not that of the last Commit.
	behind bool
}

// key is as much of a hash as the index holds.
type key [keyLen]byte

func keyOf(h *cas.Hash) key { return key(h[:keyLen]) }

// OpenDeferring is Open, but for a disk that has no room for a new file: then all is kept in memory.
func OpenDeferring(path string, opt Options) (*Deferring, error) {
	d := &Deferring{path: path, opt: opt, commit: (*DB).Commit, late: map[key]cas.Entry{}}
	if err := d.open(); err != nil {
		return nil, err
	}
	if d.db != nil {
		d.reason = d.db.Recovered
	}
	return d, nil
}

// open sets db.
func (d *Deferring) open() error {
	db, err := Open(d.path, d.opt)
	if err != nil && (d.opt.ReadOnly || !noSpace(err)) {
		return err
	}
	d.db = db // nil when there is no room
	return nil
}

// Recovered says in a sentence why the index was made anew, by the last Open or Renew; empty when it was not.
func (d *Deferring) Recovered() string {
	d.swap.RLock()
	defer d.swap.RUnlock()
	return d.reason
}

// Renew puts the file aside, whatever is in it, and makes an empty one. What is late is dropped.
func (d *Deferring) Renew(reason error) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.swap.Lock()
	defer d.swap.Unlock()
	if d.db != nil {
		_ = d.db.shut() // whatever it says, it is given up
		d.db = nil
	}
	aside, err := MoveAside(d.path, d.opt.Aside)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("index: %w", err)
	}
	d.reason = fmt.Sprintf("%v; kept as %s", reason, aside)
	d.mu.Lock()
	clear(d.late)
	d.behind = false
	d.mu.Unlock()
	return d.open()
}

// view calls f with the index, if there is a file.
func (d *Deferring) view(f func(db *DB) error) error {
	d.swap.RLock()
	defer d.swap.RUnlock()
	if d.db == nil {
		return nil
	}
	return f(d.db)
}

// Locate is DB.Locate.
func (d *Deferring) Locate(hashes []cas.Hash, locs []cas.Location) error {
	clear(locs[:len(hashes)])
	if err := d.view(func(db *DB) error { return db.Locate(hashes, locs) }); err != nil {
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
	if d.db == nil { // changed only under writing
		d.swap.Lock()
		err := d.open()
		d.swap.Unlock()
		if err == nil && d.db == nil {
			err = syscall.ENOSPC
		}
		if err != nil {
			return err
		}
	}
	d.mu.RLock()
	if len(d.late) > 0 {
		all := make([]cas.Entry, 0, len(d.late)+len(entries))
		for _, e := range d.late {
			all = append(all, e)
		}
		entries = append(all, entries...)
	}
	d.mu.RUnlock()
	if err := d.commit(d.db, entries, mark); err != nil {
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
	return d.view(func(db *DB) error { return db.Remove(entries) })
}

// Watermark is the mark of the last Commit.
func (d *Deferring) Watermark() (mark cas.Watermark, err error) {
	d.mu.RLock()
	mark, behind := d.mark, d.behind
	d.mu.RUnlock()
	if behind {
		return mark, nil
	}
	mark = cas.Watermark{}
	err = d.view(func(db *DB) (err error) {
		mark, err = db.Watermark()
		return err
	})
	return mark, err
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
	err := d.view(func(db *DB) error {
		return db.ForEach(from, to, func(e cas.Entry) error {
			if _, ok := late[keyOf(&e.Hash)]; ok {
				return nil
			}
			return f(e)
		})
	})
	for _, e := range late {
		if err != nil {
			break
		}
		err = f(e)
	}
	return err
}

// Check is DB.Check.
func (d *Deferring) Check() error { return d.view((*DB).Check) }

// Totals is DB.Totals, without what is late.
func (d *Deferring) Totals() (sum map[cas.Kind]Total, err error) {
	err = d.view(func(db *DB) (err error) {
		sum, err = db.Totals()
		return err
	})
	return sum, err
}

// GetMeta is DB.GetMeta.
func (d *Deferring) GetMeta(key string) (value []byte, err error) {
	err = d.view(func(db *DB) (err error) {
		value, err = db.GetMeta(key)
		return err
	})
	return value, err
}

// SetMeta is DB.SetMeta.
func (d *Deferring) SetMeta(key string, value []byte) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	if d.db == nil {
		return &os.PathError{Op: "write", Path: d.path, Err: syscall.ENOSPC}
	}
	return d.view(func(db *DB) error { return db.SetMeta(key, value) })
}

// Size is DB.Size.
func (d *Deferring) Size() (size int64, err error) {
	err = d.view(func(db *DB) (err error) {
		size, err = db.Size()
		return err
	})
	return size, err
}

// Close writes what is late, if there is room, and closes the index.
func (d *Deferring) Close() error {
	d.writing.Lock()
	defer d.writing.Unlock()
	err := d.flush()
	if noSpace(err) {
		err = nil // the next start replays it
	}
	d.swap.Lock()
	defer d.swap.Unlock()
	if d.db == nil {
		return err
	}
	cerr := d.db.Close()
	d.db = nil
	return errors.Join(err, cerr)
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
