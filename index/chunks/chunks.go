// Package chunks is the chunk index: which segment holds which record. It is derived. Segments are the truth, so an index
// that is missing, damaged or of another store is put aside and replaced by an empty one, and the store replays its
// segments into that.
//
// # Format, version 2
//
// A bbolt file with three buckets. All integers are big-endian.
//
//	meta     "format"  "ckptfs-index" u32 version
//	         "store"   16 bytes: the id of the store
//	         "mark"    u32 segment, u64 offset: every record below is in the index; u32 checksum
//	         "totals"  for each kind of record present: u8 kind, u64 records, u64 raw bytes, u64 stored bytes; u32 checksum
//	state    keys and values of the layers above (GetMeta, SetMeta)
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
// The highest bit of the kind is set when the record is a delta (cas.Location).
//
// The tail is bits 16 to 127 of the hash, so the index tells hashes apart by 128 bits; the record's header in the segment
// holds all 256, and the store compares them whenever it reads. A checksum is the CRC-32C of the key and of what stands
// before it in the value: bbolt has none, and an entry that names a wrong place would make a sound chunk unreadable.
//
// Prefix blobs rather than one key a chunk, because what costs in bbolt is keys: a commit sorts its entries and rewrites
// one value a prefix, pages are filled to the brim, and an entry takes 31 to 34 bytes on disk instead of 112 to 202.
// Values grow with the store (15 entries at a million chunks, 150 at ten); more prefix bits would be another version.
package chunks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"ckptfs/cas"
)

const (
	formatName    = "ckptfs-index"
	formatVersion = 2

	// lockTimeout bounds the wait for another process's lock on the file.
	lockTimeout = time.Second
	// mapSize is address space, not memory. A map that needs no growing never waits for readers.
	mapSize = 1 << 30
)

var (
	bucketMeta   = []byte("meta")
	bucketState  = []byte("state")
	bucketChunks = []byte("chunks")

	keyFormat = []byte("format")
	keyStore  = []byte("store")
	keyMark   = []byte("mark")
	keyTotals = []byte("totals")
)

// Options configures Open.
type Options struct {
	StoreID [16]byte // an index of another store is put aside
	NoSync  bool     // commits are not durable: for tests
	// ReadOnly opens an index that is there, and changes nothing, whatever it finds: one that is missing or damaged is an
	// error (fs.ErrNotExist, cas.ErrCorrupt).
	ReadOnly bool
	// Aside is the directory that an index goes to that is put aside; "": it stays beside the new one.
	Aside string
}

// DB is the index of one store. It is safe for concurrent use.
type DB struct {
	// Recovered says in a sentence what was wrong with the index that Open put aside; empty when nothing was. The
	// index is then empty, its watermark zero.
	Recovered string

	path   string
	opt    Options
	bolt   *bolt.DB
	file   *os.File    // bolt's own
	broken atomic.Bool // bolt panicked: its locks are in no known state and nothing calls it any more
}

// Open opens the index at path, or makes an empty one. The error is cas.ErrNewer for an index of a later version, and
// the system's when the file cannot be read or another process has it open; neither touches the file.
func Open(path string, opt Options) (*DB, error) {
	db := &DB{path: path, opt: opt}
	err := db.open(opt)
	switch {
	case err != nil && opt.ReadOnly:
		return nil, fmt.Errorf("index %s: %w", path, err)
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, cas.ErrCorrupt):
		aside, aerr := MoveAside(path, opt.Aside)
		if aerr != nil {
			return nil, fmt.Errorf("index: %w", errors.Join(err, aerr))
		}
		db.Recovered = fmt.Sprintf("%v; kept as %s", err, aside)
	case err != nil:
		return nil, fmt.Errorf("index %s: %w", path, err)
	default:
		return db, nil
	}
	if err := create(path, opt); err != nil {
		return nil, fmt.Errorf("index %s: %w", path, err)
	}
	db.broken.Store(false)
	if err := db.open(opt); err != nil {
		return nil, fmt.Errorf("index %s: %w", path, err)
	}
	return db, nil
}

// open opens an index that is there. The error wraps cas.ErrCorrupt when the file is no index of this store.
func (db *DB) open(opt Options) error {
	st, err := os.Stat(db.path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	if st.Size() == 0 {
		return fmt.Errorf("empty file: %w", cas.ErrCorrupt)
	}
	err = db.guard(func() (err error) {
		db.bolt, err = openBolt(db.path, opt, &db.file)
		if err == nil || errors.Is(err, berrors.ErrTimeout) || fromSystem(err) {
			return err
		}
		return fmt.Errorf("%w: %w", err, cas.ErrCorrupt)
	})
	if err == nil {
		err = db.guard(func() error { return db.bolt.View(func(tx *bolt.Tx) error { return verify(tx, opt, st.Size()) }) })
	}
	if err != nil {
		db.shut()
	}
	return err
}

// verify looks for what tells at once that a file is not the index wanted.
func verify(tx *bolt.Tx, opt Options, size int64) error {
	if tx.Size() > size {
		return fmt.Errorf("cut short to %d of %d bytes: %w", size, tx.Size(), cas.ErrCorrupt)
	}
	meta := tx.Bucket(bucketMeta)
	if meta == nil || tx.Bucket(bucketState) == nil || tx.Bucket(bucketChunks) == nil {
		return fmt.Errorf("buckets missing: %w", cas.ErrCorrupt)
	}
	f := meta.Get(keyFormat)
	if len(f) != len(formatName)+4 || string(f[:len(formatName)]) != formatName {
		return fmt.Errorf("no format mark: %w", cas.ErrCorrupt)
	}
	switch v := binary.BigEndian.Uint32(f[len(formatName):]); {
	case v > formatVersion:
		return fmt.Errorf("format %d: %w", v, cas.ErrNewer)
	case v < formatVersion:
		return fmt.Errorf("format %d, want %d: %w", v, formatVersion, cas.ErrCorrupt)
	}
	if id := meta.Get(keyStore); !bytes.Equal(id, opt.StoreID[:]) {
		return fmt.Errorf("of store %x, want %x: %w", id, opt.StoreID, cas.ErrCorrupt)
	}
	if _, err := readMark(meta); err != nil {
		return err
	}
	_, err := readTotals(meta)
	return err
}

// create makes an empty index, so that path never names a half-made one.
func create(path string, opt Options) (err error) {
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b, err := openBolt(tmp, opt, new(*os.File))
	if err != nil {
		return err
	}
	err = b.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{bucketMeta, bucketState, bucketChunks} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		meta := tx.Bucket(bucketMeta)
		if err := meta.Put(keyFormat, binary.BigEndian.AppendUint32([]byte(formatName), formatVersion)); err != nil {
			return err
		}
		return meta.Put(keyStore, opt.StoreID[:])
	})
	if err == nil {
		err = b.Sync()
	}
	if err = errors.Join(err, b.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func openBolt(path string, opt Options, file **os.File) (*bolt.DB, error) {
	return bolt.Open(path, 0o600, &bolt.Options{
		Timeout:         lockTimeout,
		FreelistType:    bolt.FreelistMapType,
		InitialMmapSize: mapSize,
		NoSync:          opt.NoSync,
		ReadOnly:        opt.ReadOnly,
		NoStatistics:    true,
		OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
			f, err := os.OpenFile(name, flag, perm)
			*file = f
			return f, err
		},
	})
}

// MoveAside renames the file of an index that is not open to the first free of NAME.corrupt-1, -2, … in dir, or beside it
// when dir is empty, and returns its new path. Nothing that is there is replaced.
func MoveAside(path, dir string) (string, error) {
	if dir == "" {
		dir = filepath.Dir(path)
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	for i := 1; ; i++ {
		aside := filepath.Join(dir, fmt.Sprintf("%s.corrupt-%d", filepath.Base(path), i))
		if _, err := os.Lstat(aside); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err := os.Rename(path, aside); err != nil {
			return "", err
		}
		return aside, errors.Join(syncDir(dir), syncDir(filepath.Dir(path)))
	}
}

// Close closes the index. One in which damage was met is put aside, so that the next Open makes a new one.
func (db *DB) Close() error {
	broken := db.broken.Load()
	err := db.shut()
	if broken && !db.opt.ReadOnly {
		_, aerr := MoveAside(db.path, db.opt.Aside)
		err = errors.Join(err, aerr)
	}
	return err
}

// shut closes what is open. Of a broken database only the file, which gives up its lock: bolt's Close could wait for ever
// on a lock of its own.
func (db *DB) shut() error {
	defer func() { db.bolt, db.file = nil, nil }()
	switch {
	case db.broken.Load() && db.file != nil:
		return db.file.Close()
	case db.bolt != nil:
		return db.bolt.Close()
	}
	return nil
}

// guard turns a panic of bolt's, which is how it meets most damage, and a fault in its memory map into cas.ErrCorrupt.
func (db *DB) guard(f func() error) (err error) {
	if db.broken.Load() {
		return fmt.Errorf("index: damage met earlier: %w", cas.ErrCorrupt)
	}
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			db.broken.Store(true)
			err = fmt.Errorf("index: %v: %w", r, cas.ErrCorrupt)
		}
	}()
	return f()
}

func (db *DB) view(f func(tx *bolt.Tx) error) error {
	return db.guard(func() error { return db.bolt.View(f) })
}

func (db *DB) update(f func(tx *bolt.Tx) error) error {
	return db.guard(func() error { return db.bolt.Update(f) })
}

// fromSystem reports whether the system refused, which says nothing about the bytes in the file.
func fromSystem(err error) bool {
	var path *fs.PathError
	var errno syscall.Errno
	return errors.As(err, &path) || errors.As(err, &errno)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
