// Package store is the content-addressed store: it takes chunks by their hash, holds each once, and returns
// them checked.
//
// # Parts
//
// A Store is a folder of segments and four parts, each with a mutex for its state that is never held over
// I/O:
//
//	appender  what is being written: segments that are appended to, records on their way into the index
//	pins      what writers, sweeps and compactions promise one another about records
//	reader    turns the place of a record into its content, through its bases
//	indexer   the index, and its replacement when it proves damaged
//
// Above them are the commit (commit.go, drain.go), which makes records durable and takes them from appender
// to indexer; the Sweep and the Compaction, which rewrite segments; and the Check. locks.go has the order of
// all locks.
//
// # Life of a chunk
//
// A caller opens a Batch and puts chunks, from any number of goroutines. Put pins the hash, so that no sweep
// takes it before the batch is released, and claims it. Every other Put of the same chunk depends on that
// claim, in this batch or another. The Put that claimed asks the index. If the chunk is not held it is
// encoded. A slot in an active segment is reserved, the record is written without any lock, and the slot
// finished. From then on the chunk can be read. PutHeld does that for many chunks that are likely to
// be held: it pins them, claims none, and asks the index once. What is not held there, durably, is for Put.
//
// Commit waits for the records that the batch depends on, its own and others', and makes them durable: fsync
// of the segments that have them, then one commit of the index. Commits that come while one is under way
// share the next one. Goroutines of their own sync a segment while it fills, and drain one that is full: they
// sync it, take what it holds into the index and seal it. Only a commit that needs something of that segment
// waits for them.
//
//	claimed ──────────> written ──────────> indexed
//	   │ held already      │ fsync fails
//	   ├──> indexed        └──> failed: every batch that depends on it fails
//	   └──> failed (ENOSPC, EIO): likewise; the store goes on
//
// A batch is released when something that a sweep's mark finds names its chunks: after the manifest was
// published. One that is released without a commit leaves its records: others may depend on them, else they
// are garbage for a sweep. TakeBack drops at once what no flush has taken and nobody else may need.
//
// # Deltas
//
// PutRelated stores a record as its difference from a version before it (package segment says how), if that
// pays. Such a record is a delta, and what it needs to be decoded are its bases.
//
//	put         pins its bases, once it was encoded against them, as long as it is pinned; for a sweep they
//	            were put with it. When a base that is not durable yet fails, the delta fails
//	put again   counts as held only when its bases are held: if nothing needed it, it may have outlived them
//	read        decodes through the bases. Their checksums are looked at, and the XXH3 or the hash of the
//	            result (package trust), which tells of a wrong base, too; only where that is another one, the
//	            hashes of the bases
//	swept       see Sweep
//	compacted   see Compaction, which gives a record a number that the deltas written against it allow
//
// A record of low rank needs columns besides (package segment), which are a base in all of this. PutRelated
// puts them itself, as a chunk of the same batch, before the first record that is written with their help.
// Every other Put of a record that needs them waits until they are there. Where they are not available as a
// base of a lower number, because the same chunk occurs in a file and is stored as a delta, the record is
// stored without them.
//
// A recipe has up to 40 bases, which PutRelated does not put: what is not there is no base. It leads back to
// delta.MostLed records at most, and Compaction sees to it that this stays so.
//
// # What a crash leaves
//
// The index has a watermark: every record before it is in the index, or failed. It never passes a slot that
// is being written. Open replays what lies behind it: a sealed segment's footer, or a scan of a segment that
// was being written. Before the scan comes an fsync, since a killed process leaves records in the page cache
// that are on no disk. A segment is appended to only by the process that created it.
//
// After an fsync that failed, of any caller, nothing is believed that is in the segment and not in the
// index, whatever later reads or fsyncs say. The records fail, the file is cut back and abandoned, and
// writing goes on in a new one.
//
// A segment that the disk does not read (disk.Unreadable), or cannot settle, is damage of that segment
// (unread.go): the store opens without it, and leaves the file alone.
package store

import (
	"cmp"
	"errors"
	"path/filepath"
	"sync/atomic"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/proven"
	"ckptfs/cas/segment"
)

// Locator is the index of the chunks.
type Locator interface {
	// Locate sets locs[i] to where hashes[i] lies; Segment 0: not held.
	Locate(hashes []cas.Hash, locs []cas.Location) error
	// Commit adds entries, of which a later one replaces an earlier one of the same hash, and sets the
	// watermark, in one step. It does not keep entries. A crash may take the last Commits, with their marks.
	Commit(entries []cas.Entry, mark cas.Watermark) error
	// Watermark is the mark of the last Commit; zero: the index is empty.
	Watermark() (cas.Watermark, error)
	// Highest is no less than the segment of any entry that it has, and no more than that of any it ever had.
	Highest() (uint32, error)
	// Remove takes entries out, each only if its hash still has that very location. When it returns nil, that
	// and every Commit before are durable.
	Remove(entries []cas.Entry) error
	// ForEach calls f with the entries whose hashes begin with a 16-bit prefix in [from, to]. Of a hash the
	// first 16 bytes are sure to be there. f calls no method of the Locator.
	ForEach(from, to uint16, f func(cas.Entry) error) error
}

// Options of a store; the zero value has the defaults.
type Options struct {
	SegmentSize int64 // segments are sealed about there; 1 GiB
	Tails       int   // segments that take records at a time; one for four processors
	OpenFiles   int   // segments kept open for reading; 128
	ReplayBatch int   // entries in one commit of a replay; 65536
	ExpectBytes int64 // memory for what is expected, and half of that for bases of recipes; 24 MiB
	// Spill is where a pass keeps what it notes of very many records (package spilled); nil: in memory.
	Spill *disk.Folder
	// ReadOnly opens a store that was closed in order, and changes nothing; the disk.FS should be a
	// disk.ReadOnly. Open fails with ErrNeedsRecovery when the index lacks records that the segments have.
	ReadOnly bool
	Now      func() time.Time
	// NewIndex puts the index aside and returns an empty one, into which all segments are replayed. It is
	// called when the index proves damaged (cas.ErrCorrupt), by Open or later, or by Open when it knows of
	// more than there is (ErrIndexAhead). nil: whatever struck this fails with reason.
	NewIndex func(reason error) (Locator, error)
	// Room is asked before n bytes are written that only save room: a chunk that a compaction stores again, a
	// record that a sweep moves. Its error, which wraps ENOSPC, keeps them from being written. nil: the disk
	// says itself when it is full.
	Room func(n int64) error
	// Unreadable is told of each segment that the disk does not read, or not all of, by Open or when an index
	// is made. May be nil.
	Unreadable func(n uint32, err error)
	// Untrusted: the store was not read as a whole where it lies now, so that every read is held against the
	// hash of the record (package trust), until a Check has read all.
	Untrusted bool
	// Known is told what is seen of records; it is shared with what drops local copies. nil: its own.
	Known *proven.Known
	// Verified is told when a Check has read all and found no damage, or there is nothing. May be nil.
	Verified func()
	// MakeRoom is called before a sweep writes anything, and when the disk has no room for what a sweep has
	// to write to free some. It reports whether there is more now. May be nil.
	MakeRoom func() bool
}

func (o *Options) defaults() {
	if o.SegmentSize <= 0 {
		o.SegmentSize = 1 << 30
	}
	if o.Tails <= 0 {
		o.Tails = max(1, cas.Processors/4)
	}
	if o.OpenFiles <= 0 {
		o.OpenFiles = 128
	}
	if o.ExpectBytes <= 0 {
		o.ExpectBytes = 24 << 20
	}
	if o.Known == nil {
		o.Known = proven.New(o.Spill)
	}
	if o.ReplayBatch <= 0 {
		o.ReplayBatch = 1 << 16
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Store is a directory of segments and an index. All methods may be called by several goroutines at once.
//
// The package comment says what its parts are for.
type Store struct {
	folder
	opt      Options
	appender appender
	pins     pins
	reader   reader
	indexer  indexer
	passes   passes
	lost     segment.Lost
	// spending is what is being written that Options.Room was asked for.
	spending atomic.Int64
	underway atomic.Int64 // bytes that batches wrote which are not released
}

// Open opens the store in dir (STORE/segments), which it creates if there is none, and brings the index up to
// date.
func Open(fs disk.FS, dir string, id [16]byte, index Locator, opt Options) (*Store, error) {
	opt.defaults()
	s := &Store{folder: folder{fs, dir, id}, opt: opt, indexer: indexer{index: index, renewal: opt.NewIndex}}
	s.appender.init(s.folder, &opt)
	s.pins.init()
	s.reader.init(s, s.folder, &s.opt)
	if !opt.ReadOnly {
		if err := fs.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		if err := fs.SyncDir(filepath.Dir(dir)); err != nil {
			return nil, err
		}
	}
	err := s.recover()
	if err != nil && opt.NewIndex != nil &&
		(errors.Is(err, ErrIndexAhead) || errors.Is(err, errIndexCorrupt)) {
		if s.indexer.index, err = opt.NewIndex(err); err == nil {
			s.appender.stats = Stats{}
			err = s.recover()
		}
	}
	if err != nil {
		return nil, err
	}
	if s.appender.stats.Segments == 0 && !opt.ReadOnly {
		s.reader.trust.Vouch()
	}
	return s, nil
}

// Close commits what was written, seals the active segment and closes all files. Batches that are still open
// can only be released.
func (s *Store) Close() error {
	s.reader.ahead.Close()
	a := &s.appender
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil
	}
	a.closed = true
	a.mu.Unlock()
	a.tails.Close()
	a.aside.Wait()
	var err error
	tails, _ := a.tails.All()
	for _, t := range tails {
		err = cmp.Or(err, s.drainOne(t))
	}
	err = cmp.Or(err, s.flushed(nil)) // nothing is left, but the watermark may be behind
	tails, _ = a.tails.All()          // only if the index failed
	for _, t := range tails {
		t.Close()
	}
	s.reader.files.Close()
	return err
}

// Pinned reports whether an open batch has put h: no sweep may take it.
func (s *Store) Pinned(h cas.Hash) bool { return s.pins.pinned(keyOf(h)) }

// folder is where the segments of a store lie.
type folder struct {
	fs  disk.FS
	dir string
	id  [16]byte // the store's
}

func (d folder) segment(n uint32) segment.ID { return segment.ID{Store: d.id, Number: n} }

// open opens segment n for reading.
func (d folder) open(n uint32) (*segment.Reader, error) {
	return segment.Open(d.fs, d.dir, d.segment(n))
}

// numbers lists the segments in the directory, ascending.
func (d folder) numbers() ([]uint32, error) { return segment.Numbers(d.fs, d.dir) }

// room reports whether n bytes may be written that only save room. Until written is called they count as not
// being on the disk yet.
func (s *Store) room(n int64) (written func(), err error) {
	if s.opt.Room == nil {
		return func() {}, nil
	}
	if err := s.opt.Room(s.spending.Add(n)); err != nil {
		s.spending.Add(-n)
		return nil, err
	}
	return func() { s.spending.Add(-n) }, nil
}

// makeRoom reports whether there is more room on the disk now.
func (s *Store) makeRoom() bool { return s.opt.MakeRoom != nil && s.opt.MakeRoom() }
