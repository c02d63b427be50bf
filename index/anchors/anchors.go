// Package anchors is the index of the anchors (package cas/anchor) of the tensors in a store: which tensors
// have one. It is derived. What is damaged or of another store is removed, and made again when somebody notes
// it again; nothing is read with its help that could not be read without. A wrong answer costs a look.
//
// # Files, version 1
//
// A folder has sorted runs, which stay as they are, and one log. Integers are big-endian.
//
// A run is called FIRST-LAST.run, two numbers of eight hexadecimal digits: it has what the runs and logs of
// these numbers and those between them had. Those are removed once it is there, at the latest at the next
// start. It is made of pages of 4096 bytes, of which the last four are the CRC-32C of the others, and the
// four before these the number of bytes in use.
//
//	page 0   "ckptfs-anchors\x00\x00", u32 version, 16 bytes: the id of the store, u32 first, u32 last,
//	         u64 entries, u32 tensors, u32 manifests
//	entries  8 bytes each, ascending: 40 bits of anchor, 24 of the number of a tensor in this run
//	tensors  8 bytes each: u32 the number of a manifest in this run, u32 which of its tensors it is
//	manifest 32 bytes each: the hash
//	fences   4 bytes each: the upper 32 of the 40 bits of the first anchor of each page of entries
//
// The log is called NUMBER.log. It is a header like page 0, of which the counts are zero, and documents:
//
//	u32 length of what follows the checksum, u32 CRC-32C of that; 32 bytes: the hash of a manifest; for each
//	of some of its tensors: u32 which, u8 n, n anchors of 5 bytes
//
// Nothing waits for it to be durable. What is torn at its end is cut off at the next start.
//
// # Sizes
//
// A tensor of 78 anchors takes some 640 bytes. In memory are the fences, 4 bytes for each 511 anchors, and
// what the log has. A lookup reads one page of each run, seldom two. A log becomes a run once it has so many
// anchors (Options.Log); runs are merged with the one before them as long as that has less than four times as
// many, so that there are few. Merging leaves out what is gone.
package anchors

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync/atomic"

	"ckptfs/cas"
	"ckptfs/cas/anchor"
	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
)

type indexLock struct{} // Index.mu

func (indexLock) Rank() (int, string) { return locks.Index + 80, "anchors.Index.mu" }

// Options configures Open.
type Options struct {
	Store [16]byte // an index of another store is removed
	// Alive reports whether a manifest is still in the store; nil: all are.
	Alive func(m cas.Hash) bool
	// Log is how many anchors the log has at most before it becomes a run; 0: 256 Ki.
	Log int
}

// Tensor is one whose anchors are noted.
type Tensor struct {
	Index uint32 // in its manifest's list
	Keys  []anchor.Key
}

// Hit is a tensor that has anchors that were looked for.
type Hit struct {
	Manifest cas.Hash
	Tensor   uint32
	Keys     int // how many of them
}

// Index is the index in one folder. It is safe for concurrent use.
type Index struct {
	fs  disk.FS
	dir string
	opt Options

	merging chan struct{} // whose value is taken while runs are made

	mu     locks.RWMutex[indexLock] // over what follows; held shared while it is read from
	runs   []*run                   // the oldest first
	log    *log
	frozen *log // what a run is made of
	closed bool

	dropped atomic.Bool // something that was noted is not there any more
}

const defaultLog = 256 << 10

var errClosed = errors.New("the index of anchors is closed")

// Open opens the index in a folder, which is made if it is not there. Only what keeps it from being written
// is an error.
func Open(fsys disk.FS, dir string, opt Options) (*Index, error) {
	if opt.Log == 0 {
		opt.Log = defaultLog
	}
	x := &Index{fs: fsys, dir: dir, opt: opt, merging: make(chan struct{}, 1)}
	x.merging <- struct{}{}
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("index of anchors: %w", err)
	}
	if err := x.open(); err != nil {
		x.close()
		return nil, fmt.Errorf("index of anchors: %w", err)
	}
	return x, nil
}

func (x *Index) open() error {
	names, err := x.fs.ReadDir(x.dir)
	if err != nil {
		return err
	}
	var logs []*log
	for _, name := range names {
		p := path.Join(x.dir, name)
		var first, last uint32
		switch {
		case parse(name, runName, &first, &last):
			if r, err := openRun(x.fs, p, x.opt.Store, first, last); err == nil {
				x.runs = append(x.runs, r)
				continue
			}
		case parse(name, logName, &first):
			if l, err := openLog(x.fs, p, x.opt.Store, first); err == nil {
				logs = append(logs, l)
				continue
			}
		}
		x.dropped.Store(true)
		if err := x.fs.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	slices.SortFunc(x.runs, func(a, b *run) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(b.last, a.last))
	})
	slices.SortFunc(logs, func(a, b *log) int { return cmp.Compare(a.number, b.number) })
	// What another one has as well is left from when that was made.
	var next uint32
	x.runs = slices.DeleteFunc(x.runs, func(r *run) bool {
		if r.last < next {
			r.remove(x.fs)
			return true
		}
		next = r.last + 1
		return false
	})
	for i, l := range logs {
		if l.number < next || i < len(logs)-1 {
			l.remove(x.fs)
			continue
		}
		x.log = l
		return nil
	}
	x.log, err = newLog(x.fs, x.dir, x.opt.Store, next)
	return err
}

// parse reads a name that was made by a format, and no other.
func parse(name, format string, numbers ...*uint32) bool {
	to := make([]any, len(numbers))
	of := make([]any, len(numbers))
	for i, n := range numbers {
		to[i] = n
	}
	if _, err := fmt.Sscanf(name, format, to...); err != nil {
		return false
	}
	for i, n := range numbers {
		of[i] = *n
	}
	return fmt.Sprintf(format, of...) == name
}

const (
	runName = "%08x-%08x.run"
	logName = "%08x.log"
)

// Close closes the files.
func (x *Index) Close() error {
	<-x.merging
	defer func() { x.merging <- struct{}{} }()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.close()
	return nil
}

func (x *Index) close() {
	x.closed = true
	for _, r := range x.runs {
		r.f.Close()
	}
	x.runs = nil
	if x.log != nil {
		x.log.f.Close()
		x.log = nil
	}
}

// Dropped reports whether something that was noted may not be there any more.
func (x *Index) Dropped() bool { return x.dropped.Load() }

// Sizes are how many tensors the index has, and how many bytes it takes.
func (x *Index) Sizes() (tensors, bytes int64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, r := range x.runs {
		tensors += r.tensors.n
		bytes += r.size
	}
	for _, l := range x.logs() {
		tensors += int64(len(l.tensors))
		bytes += l.size
	}
	return tensors, bytes
}

// Note notes anchors of tensors of a manifest. It may have to wait until a run is written.
func (x *Index) Note(m cas.Hash, tensors []Tensor) error {
	for len(tensors) > 0 {
		n := min(len(tensors), maxNoted)
		if err := x.note(m, tensors[:n]); err != nil {
			return fmt.Errorf("index of anchors: %w", err)
		}
		tensors = tensors[n:]
	}
	return nil
}

func (x *Index) note(m cas.Hash, tensors []Tensor) error {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return errClosed
	}
	err := x.log.note(m, tensors)
	full := len(x.log.entries) >= x.opt.Log
	x.mu.Unlock()
	if err != nil || !full {
		return err
	}
	select {
	case <-x.merging:
	default:
		return nil // somebody is at it
	}
	defer func() { x.merging <- struct{}{} }()
	return x.flush(false)
}

// Merge makes one run of all, without what is gone.
func (x *Index) Merge() error {
	<-x.merging
	defer func() { x.merging <- struct{}{} }()
	if err := x.flush(true); err != nil {
		return fmt.Errorf("index of anchors: %w", err)
	}
	return nil
}

// Find lists tensors that have at least so many of keys, those that have most of them first, and of equal
// ones those that were noted last; at most most of them.
func (x *Index) Find(keys []anchor.Key, least, most int) []Hit {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	keys = slices.Compact(keys)
	x.mu.RLock()
	defer x.mu.RUnlock()
	var hits []Hit
	for _, l := range x.logs() {
		hits = l.find(hits, keys, least)
	}
	for _, r := range slices.Backward(x.runs) {
		var err error
		if hits, err = r.find(hits, keys, least); err != nil {
			r.bad.Store(true)
			x.dropped.Store(true)
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.Keys, a.Keys) })
	var found []Hit
	for _, h := range hits {
		if len(found) == most {
			break
		}
		if !slices.ContainsFunc(found, func(f Hit) bool {
			return f.Manifest == h.Manifest && f.Tensor == h.Tensor
		}) {
			found = append(found, h)
		}
	}
	return found
}

// logs are those in use, the last first. The caller holds mu, shared or not.
func (x *Index) logs() (all []*log) {
	for _, l := range [...]*log{x.log, x.frozen} {
		if l != nil {
			all = append(all, l)
		}
	}
	return all
}

// Each calls f with all tensors that are noted, until f returns false.
func (x *Index) Each(f func(m cas.Hash, tensor uint32) bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, l := range x.logs() {
		if !l.each(f) {
			return
		}
	}
	for _, r := range x.runs {
		more, err := r.each(f)
		if err != nil {
			r.bad.Store(true)
			x.dropped.Store(true)
		}
		if !more {
			return
		}
	}
}
