// Package chunks is the chunk index: which segment holds which record. It is derived. Segments are the truth,
// so an index that is missing, damaged or of another store is put aside and replaced by an empty one, and the
// store replays its segments into that.
//
// # Format, version 4
//
// A bbolt file with two buckets of the index's own. All integers are big-endian.
//
//	meta     "format"  "ckptfs-index" u32 version
//	         "store"   16 bytes: the id of the store
//	         "mark"    u32 segment, u64 offset: every record below is in the index; u32 checksum
//	         "highest" u32 segment, the highest that an entry ever had; u32 checksum. It may be missing: a
//	                   start then does not notice that the segments above the mark are
//	chunks   one pair for every 16-bit prefix in use:
//
//	key      2 bytes   the first 16 bits of the hashes
//	value    n × 29 bytes, ascending by tail; u32 checksum
//
//	         0        14         18          22       25    28  29
//	         +---------+---------+-----------+--------+-----+----+
//	         | tail    | segment | offset/8  | stored | raw |kind|
//	         +---------+---------+-----------+--------+-----+----+
//	         14 bytes    u32       u32         u24      u24   u8
//
// The lowest three bits of the kind are cas.Kind, the next four the number of the codec, and the highest is
// set when the record is a delta (cas.Location).
//
// The tail is bits 16 to 127 of the hash, so the index tells hashes apart by 128 bits; the record's header in
// the segment holds all 256, and the store compares them whenever it reads. A checksum is the CRC-32C of the
// key and of what stands before it in the value: bbolt has none, and an entry that names a wrong place would
// make a sound chunk unreadable.
//
// Prefix blobs rather than one key a chunk, because what costs in bbolt is keys: a commit sorts its entries
// and rewrites one value a prefix, pages are filled to the brim, and an entry takes 31 to 34 bytes on disk
// instead of 112 to 202. Values grow with the store (15 entries at a million chunks, 150 at ten); more prefix
// bits would be another version. Other buckets are what other packages keep in the file (DB.Bucket).
package chunks

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	bolt "go.etcd.io/bbolt"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
)

// Options configures Open.
type Options struct {
	StoreID [16]byte // an index of another store is put aside
	NoSync  bool     // commits are not durable: for tests
	// ReadOnly opens an index that is there, and changes nothing, whatever it finds: one that is missing or
	// damaged is an error (fs.ErrNotExist, cas.ErrCorrupt).
	ReadOnly bool
	// Folder is what the index and Aside lie in; nil: the folder that the index is in.
	Folder *disk.Folder
	// Aside is the directory that an index goes to that is put aside; "": it stays beside the new one.
	Aside string
}

// DB is the index of one store. It outlives a full disk and its own damage, and is safe for concurrent use.
//
// What is committed is in the index at once, and on the disk with a later commit: few entries are late, more
// when there is no room. Nothing is lost by that: the records are durable in their segments, and the
// watermark on the disk stays before them, so that the next start replays them. What lies before it, where no
// start looks, is late only without room. Only Remove, upon which a sweep destroys records, insists on the
// disk. Late pairs of buckets are derived again.
type DB struct {
	path string
	opt  Options
	own  *disk.Folder // that Open opened; nil: none

	writing locks.Mutex[writingLock] // held over commits; taken before the others

	swap   locks.RWMutex[swapLock] // held to change file and reason
	file   *file                   // nil: there is no room for one
	reason string
	commit func(*file, change) error // file.commit, but for tests
	few    bounds                    // few, but for tests
	late   late
	// marked is the watermark on the disk. It changes under writing.
	marked cas.Watermark
	// unmarked: the disk has entries of an index that is being made, and no mark. It changes under writing.
	unmarked bool
}

// Open opens the index at path, or makes an empty one; on a disk without room for that, all is kept in
// memory. The error is cas.ErrNewer for an index of a later version, and the system's when the file cannot be
// read or another process has it open; neither touches the file.
func Open(path string, opt Options) (*DB, error) {
	var own *disk.Folder
	if opt.Folder == nil {
		var err error
		if own, err = disk.OpenFolder(filepath.Dir(path)); err != nil {
			return nil, err
		}
		opt.Folder = own
	}
	db := &DB{path: path, opt: opt, own: own, commit: (*file).commit, few: few,
		late: late{entries: map[key]cas.Entry{}}}
	if opt.ReadOnly {
		db.few = none
	}
	reason, err := db.open()
	if err != nil {
		return nil, errors.Join(err, db.closeFolder())
	}
	db.reason = reason
	return db, nil
}

// open sets file.
func (db *DB) open() (reason string, err error) {
	f, reason, err := openOrCreate(db.path, db.opt)
	if err != nil {
		err = fmt.Errorf("index %s: %w", db.path, err)
		if db.opt.ReadOnly || !noSpace(err) {
			return "", err
		}
	}
	db.file, db.marked, db.unmarked = f, cas.Watermark{}, false
	if f == nil { // there is no room
		return reason, nil
	}
	return reason, f.view(func(tx *bolt.Tx) (err error) {
		db.marked, err = readMark(tx.Bucket(bucketMeta))
		return err
	})
}

// Recovered says in a sentence why the index was made again, by Open or the last Renew; empty when it was
// not.
func (db *DB) Recovered() string {
	db.swap.RLock()
	defer db.swap.RUnlock()
	return db.reason
}

// Renew puts the file aside, whatever is in it, and makes an empty one. Entries that are late are dropped.
func (db *DB) Renew(reason error) error {
	db.writing.Lock()
	defer db.writing.Unlock()
	db.swap.Lock()
	defer db.swap.Unlock()
	if db.file != nil {
		_ = db.file.close() // the file is put aside whatever this says
		db.file = nil
	}
	aside, err := MoveAside(db.opt.Folder, db.path, db.opt.Aside)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("index: %w", err)
	}
	db.reason = fmt.Sprintf("%v; kept as %s", reason, aside)
	db.late.clear()
	_, err = db.open()
	return err
}

// view calls f with the table, if there is a file.
func (db *DB) view(f func(tx *bolt.Tx) error) error {
	return db.with(func(file *file) error { return file.view(f) })
}

func (db *DB) with(f func(*file) error) error {
	db.swap.RLock()
	defer db.swap.RUnlock()
	if db.file == nil {
		return nil
	}
	return f(db.file)
}

// Commit adds the entries, and then sets the watermark. Perhaps they are late; when the disk is full they
// are, and the error is the disk's when there are too many of them. Upon any other error, or a crash, the
// watermark is the one before, and some of the entries may be there. An entry whose hash is held replaces the
// location. Of several entries with one hash the last counts.
func (db *DB) Commit(entries []cas.Entry, mark cas.Watermark) error {
	db.writing.Lock()
	defer db.writing.Unlock()
	for i := range entries {
		if err := checkLocation(entries[i].Location); err != nil {
			return err
		}
	}
	// Without the mark that ends it a start would make the whole index again.
	ends := db.unmarked && mark != cas.Watermark{}
	if !ends && !db.brokenLocked() && db.replayedLocked(entries) && db.late.add(entries, mark, db.few) {
		return nil
	}
	err := db.writeLocked(db.late.with(entries, mark))
	if noSpace(err) && !db.late.add(entries, mark, many) {
		return fmt.Errorf("%d entries wait for room on the disk: %w", many.entries, err)
	}
	return unlessFull(err)
}

// replayedLocked reports whether a start finds entries that are not on the disk. writing is held.
func (db *DB) replayedLocked(entries []cas.Entry) bool {
	return !slices.ContainsFunc(entries, func(e cas.Entry) bool {
		return (cas.Watermark{Segment: e.Segment, Off: e.Off}).Before(db.marked)
	})
}

// brokenLocked reports whether damage was met. writing is held.
func (db *DB) brokenLocked() bool { return db.file != nil && db.file.broken.Load() }

// unlessFull is err, but nil of a full disk.
func unlessFull(err error) error {
	if noSpace(err) {
		return nil
	}
	return err
}

// writeLocked commits c, which has all that is late. writing is held.
func (db *DB) writeLocked(c change) error {
	db.writing.AssertHeld()
	if db.file == nil { // changed only under writing
		db.swap.Lock()
		_, err := db.open()
		db.swap.Unlock()
		if err == nil && db.file == nil {
			err = syscall.ENOSPC
		}
		if err != nil {
			return err
		}
	}
	if err := db.commit(db.file, c); err != nil {
		return err
	}
	if c.marked {
		db.marked = c.mark
		db.unmarked = len(c.entries) > 0 && c.mark == cas.Watermark{}
	}
	db.late.clear()
	return nil
}

// flushLocked writes what is late. The error is the disk's as long as it is full. writing is held.
func (db *DB) flushLocked() error {
	c, ok := db.late.all()
	if !ok {
		return nil
	}
	return db.writeLocked(c)
}

// Sync writes what is late, for a caller that has to know that the disk has it.
func (db *DB) Sync() error {
	db.writing.Lock()
	defer db.writing.Unlock()
	return db.flushLocked()
}

// Flush writes what is late. A disk without room for it is no error.
func (db *DB) Flush() error {
	db.writing.Lock()
	defer db.writing.Unlock()
	return unlessFull(db.flushLocked())
}

// Close writes what is late, if there is room, and closes the index. One in which damage was met is put
// aside, so that the next Open makes a new one.
func (db *DB) Close() error {
	db.writing.Lock()
	defer db.writing.Unlock()
	var err error
	if !db.brokenLocked() {
		err = unlessFull(db.flushLocked()) // the next start replays it
	}
	db.swap.Lock()
	defer db.swap.Unlock()
	f := db.file
	if f == nil {
		return errors.Join(err, db.closeFolder())
	}
	db.file = nil
	err = errors.Join(err, f.close())
	if f.broken.Load() && !db.opt.ReadOnly {
		_, aerr := MoveAside(db.opt.Folder, db.path, db.opt.Aside)
		err = errors.Join(err, aerr)
	}
	return errors.Join(err, db.closeFolder())
}

// closeFolder closes the folder if Open opened it.
func (db *DB) closeFolder() error {
	own := db.own
	if db.own = nil; own == nil {
		return nil
	}
	return own.Close()
}

// The locks of this package, in the order in which they may be taken.
type (
	writingLock struct{} // DB.writing
	swapLock    struct{} // DB.swap
	lookupsLock struct{} // lookups.mu
	seekingLock struct{} // values.seeking
	lateLock    struct{} // late.mu
)

func (writingLock) Rank() (int, string) { return locks.Index + 10, "chunks.DB.writing" }
func (swapLock) Rank() (int, string)    { return locks.Index + 20, "chunks.DB.swap" }
func (lookupsLock) Rank() (int, string) { return locks.Index + 24, "chunks.lookups.mu" }
func (seekingLock) Rank() (int, string) { return locks.Index + 26, "chunks.values.seeking" }
func (lateLock) Rank() (int, string)    { return locks.Index + 30, "chunks.late.mu" }
