package volume

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/tree"
)

const (
	// restBefore is how long a plain file was left alone before its checksum is made: files that live shortly or are
	// written again and again cost nothing.
	restBefore = 10 * time.Second
	// maxResting bounds the files that are remembered one by one; when there are more the tree is walked.
	maxResting = 1024
	// maxSummed bounds the files that get a checksum, in bytes: only files with holes are that long.
	maxSummed = 1 << 30
	// walkPause is the least time between two walks, and walkShare bounds their share of all time.
	walkPause = time.Minute
	walkShare = 20
	// owedMost is how long it works without a rest.
	owedMost = 10 * time.Millisecond
)

// summer makes the checksums of plain files that rest, one after the other, and takes half of a core at most.
type summer struct {
	v     *Volume
	after time.Duration // restBefore; for tests negative: only when asked

	mu      sync.Mutex
	resting map[NodeID]time.Time // since when
	more    bool                 // others may want one
	since   time.Time            // of the last change
	told    bool                 // of a failure
	walked  time.Time
	took    time.Duration

	owed time.Duration // rest; of the one goroutine

	ctx    context.Context
	cancel context.CancelFunc
	end    sync.WaitGroup
}

func newSummer(v *Volume, after time.Duration) *summer {
	if after == 0 {
		after = restBefore
	}
	s := &summer{v: v, after: after, resting: map[NodeID]time.Time{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func (s *summer) start() {
	if s.after < 0 {
		return
	}
	s.end.Add(1)
	go func() {
		defer s.end.Done()
		select { // a file that it has not seen may have to be packed
		case <-s.v.surveyed:
		case <-s.ctx.Done():
			return
		}
		tick := time.NewTicker(max(s.after/10, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-s.ctx.Done():
				return
			case <-tick.C:
				s.turn()
			}
		}
	}()
}

func (s *summer) stop() {
	s.cancel()
	s.end.Wait()
}

// add notes a plain file that was settled just now.
func (s *summer) add(n *Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Now()
	if _, known := s.resting[n.id]; known || len(s.resting) < maxResting {
		s.resting[n.id] = s.since
	} else {
		s.more = true
	}
}

// forget lets go of a file whose last name went.
func (s *summer) forget(n *Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.resting, n.id)
}

// turn sees to the files that have rested.
func (s *summer) turn() {
	now := time.Now()
	var ids []NodeID
	s.mu.Lock()
	for id, since := range s.resting {
		if now.Sub(since) >= s.after {
			ids = append(ids, id)
			delete(s.resting, id)
		}
	}
	walk := s.more && len(s.resting) == 0 && now.Sub(s.since) >= s.after &&
		(s.walked.IsZero() || now.Sub(s.walked) >= max(min(walkPause, 6*s.after), walkShare*s.took))
	if walk {
		s.more = false
	}
	s.mu.Unlock()
	for _, id := range ids {
		n := s.v.take(id)
		if n == nil { // nobody knows it now
			s.mu.Lock()
			s.more = true
			s.mu.Unlock()
			continue
		}
		s.one(n)
		s.v.unref(n, 1)
	}
	if walk {
		if err := s.v.walk(s.ctx, "", func(_ string, n *Node) error { s.one(n); return s.ctx.Err() }); err != nil {
			s.failed(err)
		}
		s.mu.Lock()
		s.walked, s.took = time.Now(), time.Since(now)
		s.mu.Unlock()
	}
}

// take returns the node of an id with one reference more, nil when nobody holds it.
func (v *Volume) take(id NodeID) *Node {
	v.tab.mu.Lock()
	defer v.tab.mu.Unlock()
	n := v.tab.byID[id]
	if n != nil {
		n.refs++
	}
	return n
}

// one sees to a file, and rests from time to time as long as that took.
func (s *summer) one(n *Node) {
	began := time.Now()
	did, err := s.v.sum(s.ctx, n)
	if err != nil {
		s.failed(err)
	}
	if did {
		s.owed += time.Since(began)
	}
	if s.owed < owedMost {
		return
	}
	pause := time.NewTimer(s.owed)
	s.owed = 0
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-s.ctx.Done():
	}
}

// failed tells of the first failure: a file without a checksum is what it always was.
func (s *summer) failed(err error) {
	if s.ctx.Err() != nil || errors.Is(err, unix.ENOENT) {
		return
	}
	s.mu.Lock()
	told := s.told
	s.told = true
	s.mu.Unlock()
	if !told {
		s.v.report(slog.LevelWarn, "files that are not packed may be without checksums", "reason", err)
	}
}

// sumAll makes the checksums of all files that want one, now.
func (v *Volume) sumAll(ctx context.Context) error {
	<-v.surveyed
	return v.walk(ctx, "", func(_ string, n *Node) error {
		_, err := v.sum(ctx, n)
		return err
	})
}

// sumHolds reports whether a record's checksum speaks of the file as st describes it: neither was written since by
// somebody else. f.mu is held.
func sumHolds(rec *tree.Record, st *unix.Stat_t) bool {
	mtime, ok := tree.Nanoseconds(st.Mtim)
	return rec.Summed && ok && rec.Mtime == mtime && int64(rec.Size) == st.Size
}

// sum makes the checksum of a plain file that nobody writes, unless it has one. did: its bytes were read.
func (v *Volume) sum(ctx context.Context, n *Node) (did bool, err error) {
	raw, gen, before, err := v.beginSum(n)
	if raw == nil || err != nil {
		return false, err
	}
	defer raw.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(raw.Fd()), &st); err != nil {
		return false, err
	}
	if v.mayBeWritten(raw, false) {
		v.sums.add(n)
		return false, nil
	}
	h, size, err := sumOf(ctx, raw)
	if err == nil {
		err = v.step("sum: read")
	}
	if err != nil || size != st.Size {
		return true, err
	}
	return true, v.endSum(n, gen, h, before, st)
}

// beginSum opens a file that wants a checksum; nil for others.
func (v *Volume) beginSum(n *Node) (raw *os.File, gen uint64, before unix.Stat_t, err error) {
	f := n.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if err = v.load(n); err == nil && !f.rec.Packed() {
		err = v.vet(n)
	}
	if err != nil || f.rec.Packed() || f.rec.Emptying || f.damaged != nil || f.dirty || f.writers > 0 || v.isDead(n) || v.readOnly {
		return nil, 0, before, err
	}
	if err := v.statInode(n, &before); err != nil {
		return nil, 0, before, err
	}
	_, mok := tree.Nanoseconds(before.Mtim)
	_, cok := tree.Nanoseconds(before.Ctim)
	if !mok || !cok || before.Size == 0 || before.Size > maxSummed || sumHolds(&f.rec, &before) && f.rec.Epoch == v.lock.Epoch() {
		return nil, 0, before, nil
	}
	raw, err = v.openQuietly(n)
	return raw, f.gen, before, err
}

// endSum writes the record, unless the file was touched meanwhile. before and st are the inode before and after it was
// opened.
func (v *Volume) endSum(n *Node, gen uint64, h cas.Hash, before, st unix.Stat_t) error {
	f := n.file
	f.mu.Lock()
	defer f.mu.Unlock()
	var now unix.Stat_t
	if f.gen != gen || f.dirty || f.writers > 0 || f.rec.Packed() || v.isDead(n) {
		return nil
	}
	if err := v.statInode(n, &now); err != nil {
		return err
	}
	if now.Size != st.Size || now.Mtim != st.Mtim || now.Ctim != st.Ctim {
		v.sums.add(n)
		return nil
	}
	rec := f.rec
	held := sumHolds(&rec, &now)
	if held && rec.Sum != h {
		v.report(slog.LevelWarn, "a file is not what it was before the host went down: what was written and not synced was lost, or its bytes are damaged",
			"path", v.Path(n))
	}
	if !held { // else the inode's change time is that of the old record
		rec.Ctime, _ = tree.Nanoseconds(before.Ctim)
	}
	rec.Summed, rec.Sum, rec.Size, rec.Epoch = true, h, uint32(now.Size), v.lock.Epoch()
	rec.Mtime, _ = tree.Nanoseconds(now.Mtim)
	if err := v.step("sum: record"); err != nil {
		return err
	}
	v.hot.grew.Store(true) // a clean end has to make the bytes durable that the record speaks of
	f.moved = true
	return v.writeRecord(n, rec)
}

// unsum takes the checksum of a plain file away, before anything is done to the file or after its inode was changed. f.mu is
// held.
func (v *Volume) unsum(n *Node) error {
	f := n.file
	if !f.rec.Summed {
		return nil
	}
	if err := v.step("unsum"); err != nil {
		return err
	}
	v.hot.grew.Store(true) // a clean end has to make it durable that it is gone
	f.moved = true
	return v.writeRecord(n, tree.Record{ViewHidden: f.rec.ViewHidden, Literal: f.rec.Literal})
}

// sumOf reads a file to its end.
func sumOf(ctx context.Context, raw *os.File) (h cas.Hash, size int64, err error) {
	return cas.SumReader(&stoppable{ctx, io.NewSectionReader(raw, 0, maxSummed+1)})
}

// stoppable is a reader until ctx ends.
type stoppable struct {
	ctx context.Context
	r   io.Reader
}

func (s *stoppable) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}
