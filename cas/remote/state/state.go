// Package state is STORE/remote.db: what a local store knows of its remote between one process and the next.
// It may be lost as a whole: then the store registers again, and reads what others have; what it knew of
// places is uploaded once more. So a file that is damaged, of another store, or of another remote, is put
// aside.
//
// # Format, version 1
//
// A file of package index/chunks, with these tables of its own; each value has a checksum. Integers are
// big-endian.
//
//	self       "format"     u32 version: 1
//	           "remote"     16 bytes: the remote's id; missing in older files
//	           "identity"   16 bytes instance, 16 bytes commit, u64 sequence, u16 n, n × 16 bytes commits that
//	                        are pending, and to the end the writer's name
//	objects    u32 number   16 bytes id, u64 length, 1 byte class; numbers from 1
//	           16 bytes id  u32 number
//	           "numbers"    u32 the highest number
//	places     2 bytes      the first of the hashes: n × 32 bytes, ascending by tail
//	condemned  16 bytes id  u32 epoch that condemned it
//	           "epoch"      u32 the newest that is known, with all before
//	heads      writer       u16 n, n bytes version, and to the end the head as it was read
//	names      path         what fs/share makes of it; a path's slashes are zeros, so that what a folder holds
//	                        comes right behind it (record.ComparePaths)
//	files      manifest     u64 size; of the plan's record 16 bytes object, u64 offset, u32 stored; to the end
//	                        the objects that the file needs, 16 bytes each
//
// A place, of which the next 14 bytes of the hash are the tail:
//
//	 0 14  tail
//	14  4  number of the object
//	18  3  offset / 8
//	21  3  stored
//	24  3  raw
//	27  4  CRC of the payload
//	31  1  kind | 128 where it has bases
package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"syscall"

	lru "github.com/hashicorp/golang-lru/v2"

	"ckptfs/cas"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/writer"
	"ckptfs/index/chunks"
)

const version = 1

// knownObjects bounds the objects in memory.
const knownObjects = 4096

var be = binary.BigEndian

// DB is the state of one store. It is safe for concurrent use. What was damaged is lost, all of it, and as
// good as never known.
type DB struct {
	file   *chunks.DB
	tables struct{ self, objects, places, condemned, heads, names, files *chunks.Bucket }

	// swap is held shared while the file is used, and to replace it: an object has its number in one file.
	swap    sync.RWMutex
	renewed int        // how often it was replaced
	changes sync.Mutex // held to change objects and places; after swap
	objects *lru.Cache[uint32, record.Object]
}

var _ writer.State = (*DB)(nil)

// Open opens the state at path, or makes an empty one. The error is cas.ErrNewer for a later version, and the
// system's when the file cannot be read or another process has it open.
func Open(path string, store [16]byte) (*DB, error) {
	file, err := chunks.Open(path, chunks.Options{StoreID: store})
	if err != nil {
		return nil, err
	}
	db := &DB{file: file}
	db.objects, _ = lru.New[uint32, record.Object](knownObjects) // the size is positive
	for name, t := range map[string]**chunks.Bucket{"self": &db.tables.self, "objects": &db.tables.objects,
		"places": &db.tables.places, "condemned": &db.tables.condemned, "heads": &db.tables.heads,
		"names": &db.tables.names, "files": &db.tables.files} {
		*t = file.Bucket(name)
	}
	if err := db.checkFormat(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return db, nil
}

var (
	formatKey = []byte("format")
	remoteKey = []byte("remote")
)

// Of notes of which remote the state is. What is known of another one is put aside: it would be taken for
// what this one has.
func (db *DB) Of(remote record.ID) error {
	var was []byte
	err := db.use(func() (err error) {
		was, err = db.tables.self.Get(remoteKey)
		return err
	})
	if err != nil || bytes.Equal(was, remote[:]) {
		return err
	}
	if len(was) > 0 {
		db.swap.RLock()
		renewed := db.renewed
		db.swap.RUnlock()
		if err := db.renew(errors.New("the store has another remote now"), renewed); err != nil {
			return err
		}
	}
	return db.use(func() error { return db.put(db.tables.self, remoteKey, remote[:]) })
}

func (db *DB) checkFormat() error {
	return db.use(func() error {
		v, err := db.tables.self.Get(formatKey)
		switch {
		case err != nil:
			return err
		case len(v) != 4:
			return db.put(db.tables.self, formatKey, be.AppendUint32(nil, version))
		case be.Uint32(v) > version:
			return fmt.Errorf("version %d: %w", be.Uint32(v), cas.ErrNewer)
		}
		return nil
	})
}

// Close closes the file.
func (db *DB) Close() error { return db.file.Close() }

// Recovered says in a sentence why all was forgotten; empty when it was not.
func (db *DB) Recovered() string { return db.file.Recovered() }

// use calls f, and once more with an empty file if that was damaged. f does not call use.
func (db *DB) use(f func() error) error {
	db.swap.RLock()
	err, renewed := f(), db.renewed
	db.swap.RUnlock()
	if !errors.Is(err, cas.ErrCorrupt) {
		return err
	}
	if err := db.renew(err, renewed); err != nil {
		return err
	}
	db.swap.RLock()
	defer db.swap.RUnlock()
	return f()
}

// renew puts the file aside, unless that was done since.
func (db *DB) renew(reason error, renewed int) error {
	db.swap.Lock()
	defer db.swap.Unlock()
	if db.renewed != renewed {
		return nil
	}
	db.renewed++
	db.objects.Purge()
	err := db.file.Renew(reason)
	if err == nil {
		err = db.put(db.tables.self, formatKey, be.AppendUint32(nil, version))
	}
	return err
}

// put sets the value of a key. It is durable when put returns.
func (db *DB) put(t *chunks.Bucket, key, value []byte) error {
	return db.write(t, []chunks.Pair{{Key: key, Value: value}})
}

// write changes a table, all or nothing. It is durable when write returns. After an error nothing changed, or
// perhaps all, as after a crash.
func (db *DB) write(t *chunks.Bucket, pairs []chunks.Pair) error {
	return t.WriteNow(pairs)
}

// kept returns an error unless the table has the pairs. The first alone does not tell: it may be as it was.
func kept(t *chunks.Bucket, pairs []chunks.Pair) error {
	for _, p := range pairs {
		got, err := t.Get(p.Key)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, p.Value) {
			return syscall.ENOSPC
		}
	}
	return nil
}
