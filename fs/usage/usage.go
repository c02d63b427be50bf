// Package usage counts what a store holds and what that costs, and keeps the counts up to date.
//
// # What is counted
//
// The first answer looks at every file and reads every manifest, on all processors. From then on it is told
// of the inodes that change, and looks at these alone:
//
//	mirror   the folders of the tree, and of each file its size, its record and the runs that have names of it
//	counts   how often each run, and each record that needs it, refers to each record of the segments
//
// Of very many files and records these lie in files without a name (cas/spilled).
//
// A file that comes or goes, or is packed, changes the mirror; a manifest that a run gets or loses by that
// changes the counts: down to the chunks if no other file of the run has it. A record takes room from the
// first reference on, of files or of records that are stored against it, until the last one is gone.
//
// All is counted again after what the counts do not follow: a counted record was stored again, which takes
// another room and may need others (a compaction does that), or one is gone that is needed to take back what
// was counted.
//
// # What files take
//
// Du counts what some files need as all are counted, in a table of its own, and takes their manifests away in a
// table that lies over that of all: what that leaves unneeded goes with these files. So `du`, `forget
// --dry-run` and a prune tell the same bytes.
//
// # What is exact
//
// Nothing is added up from rounded values. A file that programs write is looked at for each answer. What
// changes while an answer is made may be in it or not. What a file takes in the tree is what the host said
// when the file last changed. Damage that appears behind a manifest that was read is not noticed: `ckptfs
// check` looks for it.
package usage

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
	"ckptfs/cas/spilled"
	"ckptfs/cas/store"
	"ckptfs/fs/control"
	"ckptfs/fs/maintenance"
	"ckptfs/fs/names"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
	"ckptfs/index/runs"
)

// The locks of this package, in the order in which they may be taken.
type (
	answerLock  struct{} // Usage.mu, held over a look
	changesLock struct{} // changes.mu, a leaf
	countsLock  struct{} // counts.mu, a leaf
)

func (answerLock) Rank() (int, string)  { return locks.Outer + 990, "Usage.mu" }
func (changesLock) Rank() (int, string) { return locks.Volume + 981, "usage.changes.mu" }
func (countsLock) Rank() (int, string)  { return locks.Index + 950, "usage.counts.mu" }

// Options say what Usage is of.
type Options struct {
	Folder *disk.Folder // the store's
	Spill  *disk.Folder // where what takes much memory lies meanwhile; nil: in memory
	Store  *store.Store
	Names  *names.Names
	Now    func() time.Time
	// Writing lists the files that have writers.
	Writing func() []uint64
	// Records calls keep with the records that the list of models needs, unless these are as they were at a
	// version, and says which one it is now; the first is 1.
	Records func(version uint64, keep func(cas.Hash)) (uint64, error)
}

// Usage is what is counted of a store.
type Usage struct {
	o       Options
	changes changes
	counts  counts
	ctx     context.Context // ends with Stop
	cancel  context.CancelFunc

	mu     locks.Mutex[answerLock]
	mirror *mirror
	models modelRecords
}

// modelRecords are those that the list of models needs.
type modelRecords struct {
	version uint64
	sizes   map[uint64]uint32 // by the first bits of their hashes
	bytes   int64
}

// New makes the Usage of a store that is not open yet. Nothing is counted before Stats.
func New() *Usage {
	u := &Usage{changes: changes{full: make(chan struct{}, 1)},
		counts: counts{mu: new(locks.Mutex[countsLock])}}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	return u
}

// Start says what the store is, and begins to follow it in the background.
func (u *Usage) Start(o Options) {
	u.o, u.counts.store = o, o.Store
	go func() {
		for {
			select {
			case <-u.ctx.Done():
				return
			case <-u.changes.full:
				u.Settle()
			}
		}
	}()
}

// Stop waits for what is being counted. Nothing is, and the store is not asked, afterwards.
func (u *Usage) Stop() {
	u.cancel()
	u.mu.Lock()
	defer u.mu.Unlock()
}

// Rouse has what was counted be brought up to date in the background.
func (u *Usage) Rouse() { u.changes.rouse() }

// Settle brings what was counted up to date, before records go that no file needs.
func (u *Usage) Settle() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counts.on.Load() && u.ctx.Err() == nil {
		_ = u.settleLocked(u.ctx) // the next answer tells
	}
}

// Stats is what the store holds and what it costs. A count that was begun goes on without who asked for it.
func (u *Usage) Stats(ctx context.Context) (*control.Stats, error) {
	return answer(ctx, u, func() (*control.Stats, error) {
		if err := u.modelsLocked(); err != nil {
			return nil, err
		}
		return u.statsLocked()
	})
}

// answer is what f says, with Usage.mu held, of what was brought up to date. Nobody waits for it longer than
// who asked does.
func answer[T any](ctx context.Context, u *Usage, f func() (*T, error)) (*T, error) {
	type answer struct {
		v   *T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		var a answer
		if a.err = u.updateLocked(); a.err == nil {
			a.err = spilled.Guard(func() (err error) {
				a.v, err = f()
				return err
			})
		}
		if a.err == spilled.ErrLost { // all is counted again
			u.counts.spoil()
		}
		done <- a
	}()
	select {
	case a := <-done:
		return a.v, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// updateLocked brings the counts up to date for an answer.
func (u *Usage) updateLocked() error {
	u.mu.AssertHeld()
	if err := u.ctx.Err(); err != nil {
		return err
	}
	if u.counts.on.Load() {
		for _, ino := range u.o.Writing() {
			u.Changed(ino)
		}
	}
	return u.settleLocked(u.ctx)
}

const (
	mostLooks  = 8 // at what changes while it is looked at
	mostCounts = 3 // of all, when a count proves wrong at once
)

// settleLocked brings the counts up to date.
func (u *Usage) settleLocked(ctx context.Context) error {
	u.mu.AssertHeld()
	for range mostCounts {
		if !u.counts.on.Load() || u.counts.isStale() {
			root := u.o.Names.Root().Ino()
			u.changes.begin()
			u.counts.reset(u.o.Spill)
			u.mirror, u.models = newMirror(root, u.o.Spill), modelRecords{}
			u.Changed(root)
		}
		if err := spilled.Guard(func() error { return u.lookLocked(ctx) }); err != nil {
			u.counts.spoil()
			return err
		}
		if !u.counts.isStale() {
			break
		}
	}
	return nil
}

// lookLocked looks at what changed.
func (u *Usage) lookLocked(ctx context.Context) error {
	u.mu.AssertHeld()
	var again []uint64
	for range mostLooks {
		inos := u.changes.take()
		if len(inos) == 0 && len(again) == 0 {
			break
		}
		for _, ino := range again {
			inos[ino] = true
		}
		var err error
		if again, err = u.look(ctx, inos); err != nil {
			return err
		}
	}
	for _, ino := range again {
		u.Changed(ino)
	}
	return u.counts.findHurt(u.mirror)
}

// modelsLocked finds out which records the list of models needs.
func (u *Usage) modelsLocked() error {
	u.mu.AssertHeld()
	now := modelRecords{sizes: map[uint64]uint32{}}
	var fresh []cas.Hash
	note := func(h *cas.Hash, size uint32) {
		now.sizes[binary.BigEndian.Uint64(h[:])] = size
		now.bytes += int64(size)
	}
	var err error
	now.version, err = u.o.Records(u.models.version, func(h cas.Hash) {
		if size := u.models.sizes[binary.BigEndian.Uint64(h[:])]; size > 0 {
			note(&h, size)
		} else {
			fresh = append(fresh, h)
		}
	})
	if err != nil || now.version == u.models.version {
		return err
	}
	locs := make([]cas.Location, len(fresh))
	if err := u.o.Store.Locate(fresh, locs); err != nil {
		return err
	}
	for i := range fresh {
		if locs[i].Segment != 0 {
			note(&fresh[i], uint32(locs[i].RecordSize()))
		}
	}
	u.models = now
	return nil
}

// statsLocked is what was counted.
func (u *Usage) statsLocked() (*control.Stats, error) {
	u.mu.AssertHeld()
	m := u.mirror
	u.counts.mu.Lock()
	s, live := u.counts.sum, u.counts.live+u.models.bytes
	of := slices.Clone(u.counts.runs)
	hurt := u.counts.hurt
	s.Encodings = []control.Encoding{}
	for id, e := range u.counts.by {
		if e.Codec = codec.Name(byte(id)); e.Records > 0 {
			s.Encodings = append(s.Encodings, e)
		}
	}
	u.counts.mu.Unlock()
	s.Files, s.Packed, s.Lost = m.sum.files, m.sum.packed, m.sum.lost
	s.LogicalBytes, s.PackedBytes, s.LocalBytes = m.sum.bytes, m.sum.packedBytes, m.sum.local
	s.RemoteBytes, s.CopiesBytes = m.sum.remote, m.sum.copies
	s.PlainBytes = s.LogicalBytes - s.PackedBytes - s.RemoteBytes
	if len(hurt) > 0 {
		for _, f := range m.files {
			if f.known && hurt[f.manifest] {
				s.Damaged++
			}
		}
	}
	var err error
	if s.SegmentBytes, err = maintenance.Allocated(u.o.Folder, tree.SegmentsDir); err != nil {
		return nil, err
	}
	if s.IndexBytes, err = maintenance.Allocated(u.o.Folder, tree.IndexFile); err != nil {
		return nil, err
	}
	s.StoredBytes = s.SegmentBytes + s.IndexBytes
	s.PackingBytes = min(u.o.Store.Stats().Underway, max(s.SegmentBytes-live, 0))
	s.DeadBytes = max(s.SegmentBytes-live-s.PackingBytes, 0)
	if s.StoredBytes > 0 {
		s.Ratio = float64(s.PackedBytes) / float64(s.StoredBytes)
	}
	s.Runs = m.stats(of)
	return &s, nil
}

// stats are those of the runs that have files; of has what they refer to.
func (m *mirror) stats(of []control.RunStats) []control.RunStats {
	out := []control.RunStats{}
	for _, top := range m.root.subs {
		if top.name != steps.Dir {
			continue
		}
		for _, run := range top.subs {
			if m.runs[run.run].files == 0 {
				continue
			}
			var s control.RunStats
			if int(run.run) < len(of) {
				s = of[run.run]
			}
			s.Run, s.Files, s.LogicalBytes = run.name, m.runs[run.run].files, m.runs[run.run].bytes
			for _, step := range run.subs {
				if step.holdsFiles() {
					s.Steps++
				}
			}
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b control.RunStats) int { return runs.Compare(a.Run, b.Run) })
	return out
}
