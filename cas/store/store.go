// Package store is the content-addressed store: it takes chunks by their hash, holds each once, and gives them back
// checked.
//
// # Life of a chunk
//
// A caller opens a Batch and puts chunks, from as many goroutines as it likes. Put pins the hash, so that no sweep takes
// it before the batch is released, and claims it; whoever puts the same chunk meanwhile, in this batch or another, depends on
// that claim. The claimer asks the index. If the chunk is not held it is encoded, a slot in the active segment is reserved
// under the lock, the record is written without it and finished under it. From then on the chunk can be read. PutHeld does that
// for many chunks that are likely to be held: it pins them, claims none, and asks the index once; what is not held there, for good, is for Put.
//
// Commit waits for the records that the batch depends on, its own and others', and makes them durable: fsync of the
// segments, then one transaction of the index. Commits that come while one is under way share the next one.
//
//	claimed ──────────> written ──────────> indexed
//	   │ held already      │ fsync fails
//	   ├──> indexed        └──> failed: every batch that depends on it fails
//	   └──> failed (ENOSPC, EIO): likewise; the store goes on
//
// A batch is released when something that a sweep's mark finds names its chunks: after the manifest was published. One that
// is released without a commit leaves its records: others may depend on them, else they are garbage for a sweep.
//
// # Deltas
//
// PutRelated stores a record of which a version before is known as its difference from that one (package segment says how), if that pays. Then
//
//	put       its bases are pinned as long as it is, and for a sweep they were put with it. A base that is on its way takes
//	          with it, when it fails, what was encoded against it
//	put again a delta is held only when its bases are: what nothing needs any more may have outlived them
//	got       is decoded through its bases; the bases' checksums are looked at, and the hash of what comes out; where that is another, its own
//	swept     see Sweep
//	anew      see Compaction, which gives a record a number that its own deltas allow
//
// What is of low rank needs columns besides (package segment), which are a base in all of this. PutRelated puts them itself, as a chunk of the same batch,
// before the first record that is written with their help; whoever puts another waits until they are there. Where they are not to be had as a base of
// a lower number, because some file's chunk is the same and is stored as a delta, it is stored without them.
//
// # What a crash leaves
//
// The index has a watermark: every record before it is in the index, or failed. It never passes a slot that is being
// written. Open replays what lies behind it: a sealed segment's footer, or a scan of a segment that was being written,
// after an fsync, since a killed process leaves records in the page cache that are on no disk. A segment is appended to
// only by the process that created it.
//
// After an fsync that failed nothing that was written to the segment since the last good one is believed, whatever later
// reads or fsyncs say: the records fail, the file is cut back and abandoned, and writing goes on in a new one.
package store

import (
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// Locator is the index of the chunks.
type Locator interface {
	// Locate sets locs[i] to where hashes[i] lies; Segment 0: not held.
	Locate(hashes []cas.Hash, locs []cas.Location) error
	// Commit adds entries, of which a later one replaces an earlier one of the same hash, and sets the watermark, in one
	// step that is durable when it returns. It does not keep entries.
	Commit(entries []cas.Entry, mark cas.Watermark) error
	// Watermark is the mark of the last Commit; zero: the index is empty.
	Watermark() (cas.Watermark, error)
	// Remove takes entries out, each only if its hash still has that very location. When it returns nil, that and every
	// Commit before are durable.
	Remove(entries []cas.Entry) error
	// ForEach calls f with the entries whose hashes begin with a 16-bit prefix in [from, to]. Of a hash the first 16
	// bytes are sure to be there. f calls no method of the Locator.
	ForEach(from, to uint16, f func(cas.Entry) error) error
}

// Options of a store; the zero value has the defaults.
type Options struct {
	SegmentSize int64 // segments are sealed about there; 1 GiB
	OpenFiles   int   // segments kept open for reading; 128
	ReplayBatch int   // entries in one commit of a replay; 65536
	ExpectBytes int64 // memory for what is expected; 24 MiB
	// ReadOnly opens a store that was closed in order, and changes nothing; the disk.FS should be a disk.ReadOnly. Open fails
	// with ErrNeedsRecovery when the index lacks records that the segments have.
	ReadOnly bool
	Now      func() time.Time
	// NewIndex puts the index aside and returns an empty one, into which all segments are replayed. It is called when the
	// index proves damaged (cas.ErrCorrupt), by Open or later, or by Open when it knows of more than there is
	// (ErrIndexAhead). nil: whatever struck this fails with reason.
	NewIndex func(reason error) (Locator, error)
	// Room is asked before n bytes are written that only save room: a chunk that a compaction stores anew, a record that a
	// sweep moves. Its error, which wraps ENOSPC, keeps them from being written. nil: the disk says itself when it is full.
	Room func(n int64) error
	// MakeRoom is called before a sweep writes anything, and when the disk has no room for what a sweep has to write to free some.
	// It reports whether there is more now. May be nil.
	MakeRoom func() bool
}

func (o *Options) defaults() {
	if o.SegmentSize <= 0 {
		o.SegmentSize = 1 << 30
	}
	if o.OpenFiles <= 0 {
		o.OpenFiles = 128
	}
	if o.ExpectBytes <= 0 {
		o.ExpectBytes = 24 << 20
	}
	if o.ReplayBatch <= 0 {
		o.ReplayBatch = 1 << 16
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Store is a directory of segments and an index. All methods may be called by several goroutines at once.
type Store struct {
	fs      disk.FS
	dir     string
	id      [16]byte
	index   Locator
	opt     Options
	files   *files
	known   *lru.Cache[place, segment.Base] // what deltas say of their bases
	ahead   stretches
	slots   decodeSlots
	located located
	reads   struct{ records, bytes atomic.Int64 }
	// spending is what is being written that Options.Room was asked for.
	spending atomic.Int64

	// Locks are taken in this order: pruning, sweeping, reshaping, flushing, indexing, growing, mu. No I/O happens under mu. Who holds reshaping, or one
	// after it, waits for no record that is claimed: who claimed it may have to make the index anew.
	pruning   sync.Mutex   // held by the one Sweep that is under way
	sweeping  sync.Mutex   // held by who goes through segments to reshape them
	compacts  sync.Mutex   // held by the one Compaction that is under way
	reshaping sync.RWMutex // held while a sealed segment is changed; shared by who looks at one as a whole
	flushing  sync.Mutex   // held by the one commit that is under way
	growing   sync.Mutex   // held while a segment is created

	indexing sync.RWMutex // held while the index is made anew, shared over Locator.Locate
	renewals int          // how often it was
	indexErr error        // the last time failed

	doubting sync.Mutex
	sound    time.Time // when the index was last looked through

	mu       sync.Mutex
	finished sync.Cond // on mu: a slot was finished
	closed   bool
	active   *tail   // takes the records; nil until there is one to take
	full     []*tail // not yet sealed
	last     uint32  // highest number of a segment that exists
	next     uint32  // > last
	pending  map[cas.Hash]*record
	written  []*record // in state written, by order of finishing
	pins     map[key]int
	needs    map[key][]key         // of pinned deltas: their bases, which have a pin for it
	naming   map[cas.Hash]int      // those of the pins that are no chunks
	suspect  map[cas.Hash]struct{} // found corrupt: the next Put stores them afresh
	stats    Stats                 // without what the tails hold
	// Of the sweep under way; see Sweep:
	touched map[key]struct{}      // put since it began, or pinned then; nil when there is none
	named   map[cas.Hash]struct{} // those that are no chunks
	doomed  map[key]struct{}      // about to leave the index: whoever puts one of these stores it afresh
	linked  map[key]struct{}      // bases that something was written against since the Compaction under way began, or pinned then
}

// key is as much of a hash as the index tells apart.
type key [16]byte

func keyOf(h cas.Hash) key { return key(h[:16]) }

// maxSuspects bounds Store.suspect.
const maxSuspects = 1 << 16

// A tail is a segment that this process appends to, or has filled and not yet sealed.
type tail struct {
	w *segment.Writer
	// Of the committer alone:
	named  bool  // its name is durable
	synced int64 // end of the last record that is durable
	// Under Store.mu:
	err error // fsync failed; nothing more is written to it
}

// Open opens the store in dir (STORE/segments), which it creates if there is none, and brings the index up to date.
func Open(fs disk.FS, dir string, id [16]byte, index Locator, opt Options) (*Store, error) {
	opt.defaults()
	s := &Store{
		fs: fs, dir: dir, id: id, index: index, opt: opt,
		pending: make(map[cas.Hash]*record),
		pins:    make(map[key]int),
		needs:   make(map[key][]key),
		naming:  make(map[cas.Hash]int),
		suspect: make(map[cas.Hash]struct{}),
	}
	s.finished.L = &s.mu
	s.known, _ = lru.New[place, segment.Base](knownBases) // the size is positive
	s.ahead.init(opt.ExpectBytes)
	s.slots = newDecodeSlots()
	s.files = newFiles(opt.OpenFiles, func(n uint32) (*segment.Reader, error) {
		return segment.Open(fs, dir, s.segment(n))
	})
	if !opt.ReadOnly {
		if err := fs.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		if err := fs.SyncDir(filepath.Dir(dir)); err != nil {
			return nil, err
		}
	}
	err := s.recover()
	if err != nil && opt.NewIndex != nil && (errors.Is(err, ErrIndexAhead) || errors.Is(err, errIndexCorrupt)) {
		if s.index, err = opt.NewIndex(err); err == nil {
			s.stats = Stats{}
			err = s.recover()
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close commits what was written, seals the active segment and closes all files. Batches that are still open can only be
// released.
func (s *Store) Close() error {
	s.ahead.close()
	s.flushing.Lock()
	defer s.flushing.Unlock()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	if s.active != nil {
		s.full = append(s.full, s.active)
		s.active = nil
	}
	s.mu.Unlock()
	err := s.flush()
	s.mu.Lock()
	full := s.full // only if the flush failed
	s.full = nil
	s.mu.Unlock()
	for _, t := range full {
		t.w.Close()
	}
	s.files.close()
	return err
}

func (s *Store) segment(n uint32) segment.ID { return segment.ID{Store: s.id, Number: n} }

// Pinned reports whether an open batch has put h: no sweep may take it.
func (s *Store) Pinned(h cas.Hash) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pins[keyOf(h)] > 0
}
