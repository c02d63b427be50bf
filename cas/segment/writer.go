package segment

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
)

// MaxRecords bounds the records of a segment, whose footer has to be kept in memory (18 MiB).
const MaxRecords = 1 << 18

// Writer appends to one segment, of which it is the only writer. Any number of goroutines may write at once:
// Reserve, then Write without holding any lock, then Finish.
type Writer struct {
	fs    disk.FS
	dir   string
	f     disk.File
	id    ID
	limit int64

	syncing locks.Mutex[syncingLock] // held over an fsync, and by what ends the Writer
	durable atomic.Uint64            // set under syncing

	behind  atomic.Int64 // bytes written in full since the last fsync began
	asked   atomic.Bool  // somebody is about to sync them
	writing atomic.Int32 // how many slots are not finished

	mu   locks.Mutex[writerLock]
	idle sync.Cond // on mu: a slot was finished
	off  int64     // next free byte; every range below is written, reserved or a hole
	busy []Range   // reserved and not finished
	// holes are ranges whose write failed, or that were taken back. None ends at off: such a range is used
	// again instead.
	// FileHeaderSize <= hole, hole.End <= off.
	holes    []Range
	failed   bool     // a range became a hole, so the file may reach past off
	recs     []Record // written in full, in order of Finish
	finished uint64   // how many were, those included that were taken back
	err      error    // an fsync failed
	sealed   bool
}

// Range is [Off, End) of a segment.
type Range struct{ Off, End int64 }

// Slot is a reserved range of a segment.
type Slot struct{ Range }

// Create makes the file of a new segment in dir and writes its header. The name is not durable before dir is
// synced. Records go in until the segment has reached limit bytes.
func Create(fsys disk.FS, dir string, id ID, limit int64) (*Writer, error) {
	f, err := fsys.OpenFile(Path(dir, id.Number), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(appendFileHeader(nil, id), 0); err != nil {
		f.Close()
		return nil, err
	}
	w := &Writer{fs: fsys, dir: dir, f: f, id: id, limit: limit, off: FileHeaderSize}
	w.idle.L = &w.mu
	return w, nil
}

// Number is the segment's number.
func (w *Writer) Number() uint32 { return w.id.Number }

// Reserve takes the room of a record whose payload is stored bytes long. It returns ErrFull when the segment
// has reached its limit, or failed; an empty segment takes any one record. Every Slot must be finished.
func (w *Writer) Reserve(stored int) (Slot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := Size(stored)
	if w.err != nil || w.off > FileHeaderSize && w.off+n > w.limit || len(w.recs)+len(w.busy) >= MaxRecords {
		return Slot{}, ErrFull
	}
	s := Slot{Range{w.off, w.off + n}}
	w.off = s.End
	w.busy = append(w.busy, s.Range)
	w.writing.Add(1)
	return s, nil
}

// Write writes a record into its slot. buf holds RecordHeaderSize bytes, which Write fills, and the payload
// as stored. r has Kind, Codec, Raw, Hash and XXH3, and gets the rest. What buf's array holds behind the
// payload may be overwritten.
func (w *Writer) Write(s Slot, r *Record, buf []byte) error {
	payload := buf[RecordHeaderSize:]
	r.Off, r.Stored, r.CRC = s.Off, uint32(len(payload)), crc(payload)
	if r.End() != s.End {
		return fmt.Errorf("record of %d bytes in a slot of %d", len(buf), s.End-s.Off)
	}
	r.put(buf, w.id)
	var zeros [align]byte
	buf = append(buf, zeros[:s.End-s.Off-int64(len(buf))]...)
	_, err := w.f.WriteAt(buf, s.Off)
	return err
}

// Finish reports what became of a slot, and returns how many records are finished then. The room of a failed
// one is used again if nothing was reserved behind it. The error is err, or that of a Sync.
func (w *Writer) Finish(s Slot, r *Record, err error) (n uint64, _ error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = slices.DeleteFunc(w.busy, func(b Range) bool { return b == s.Range })
	w.writing.Add(-1)
	w.idle.Broadcast()
	if err = cmp.Or(err, w.err); err != nil {
		w.dropLocked(s.Range)
		return w.finished, err
	}
	w.recs = append(w.recs, *r)
	w.finished++
	w.behind.Add(s.End - s.Off)
	return w.finished, nil
}

// skipHoles moves end down over the holes that end there.
func skipHoles(holes []Range, end int64) int64 {
	for {
		i := slices.IndexFunc(holes, func(h Range) bool { return h.End == end })
		if i < 0 {
			return end
		}
		end = holes[i].Off
	}
}

// TakeBack drops finished records that nothing needs, by their slots. Their bytes become holes before
// anything else is written there; the room of those at the end is used again. An error says that bytes
// stayed.
func (w *Writer) TakeBack(slots []Range) (err error) {
	slices.SortFunc(slots, func(a, b Range) int { return cmp.Compare(a.Off, b.Off) })
	var holes []Range
	for _, s := range slots {
		if n := len(holes); n > 0 && holes[n-1].End == s.Off {
			holes[n-1].End = s.End
		} else {
			holes = append(holes, s)
		}
	}
	for _, h := range holes {
		if perr := w.f.PunchHole(h.Off, h.End-h.Off); err == nil {
			err = perr
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recs = slices.DeleteFunc(w.recs, func(r Record) bool {
		_, ok := slices.BinarySearchFunc(slots, r.Off,
			func(s Range, off int64) int { return cmp.Compare(s.Off, off) })
		return ok
	})
	w.dropLocked(holes...)
	return err
}

// Disown has no footer list the finished records at offs. Their bytes stay.
func (w *Writer) Disown(offs map[int64]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recs = slices.DeleteFunc(w.recs, func(r Record) bool { return offs[r.Off] })
}

// dropLocked makes holes of ranges in which there is no record. mu is held.
func (w *Writer) dropLocked(holes ...Range) {
	w.failed = true
	w.holes = append(w.holes, holes...)
	w.off = skipHoles(w.holes, w.off)
	w.holes = slices.DeleteFunc(w.holes, func(h Range) bool { return h.Off >= w.off })
}

// Settled is the offset below which nothing is being written. The file reaches that far at least.
func (w *Writer) Settled() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	end := w.off
	for _, b := range w.busy {
		end = min(end, b.Off)
	}
	return skipHoles(w.holes, end)
}

// Idle reports whether every slot is finished.
func (w *Writer) Idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.busy) == 0
}

// Size is the length of the segment so far.
func (w *Writer) Size() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.off
}

// Totals counts the records that were written in full.
func (w *Writer) Totals() Totals {
	w.mu.Lock()
	defer w.mu.Unlock()
	var t Totals
	for i := range w.recs {
		t.Count(&w.recs[i])
	}
	return t
}

// Records lists what was written in full, by ascending offset.
func (w *Writer) Records() []Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	recs := slices.Clone(w.recs)
	slices.SortFunc(recs, byOffset)
	return recs
}

func byOffset(a, b Record) int { return cmp.Compare(a.Off, b.Off) }

// Seal writes the footer, with the time now, and syncs. The Writer must be idle, and takes nothing more.
func (w *Writer) Seal(now time.Time) (Totals, error) {
	w.syncing.Lock()
	defer w.syncing.Unlock()
	w.mu.Lock()
	ready := !w.sealed && len(w.busy) == 0 && w.err == nil
	w.sealed, w.limit = true, 0
	off, failed := w.off, w.failed
	w.mu.Unlock()
	if !ready {
		return Totals{}, fmt.Errorf("segment %d cannot be sealed now", w.id.Number)
	}
	if failed {
		if err := w.f.Truncate(off); err != nil {
			return Totals{}, err
		}
	}
	t, end, err := writeFooter(w.f, w.id, off, w.Records(), now)
	if err != nil {
		return t, err
	}
	w.mu.Lock()
	w.off = end
	w.mu.Unlock()
	return t, w.f.Sync()
}

// Abandon takes lost, what was dropped, and everything from off on, out of the file and closes it. These
// bytes were never made durable and must not come back from the page cache. The Writer must be idle.
func (w *Writer) Abandon(off int64, lost []Range) error {
	w.syncing.Lock()
	defer w.syncing.Unlock()
	w.mu.Lock()
	lost = append(lost, w.holes...)
	w.mu.Unlock()
	err := w.f.Truncate(off)
	for _, r := range lost {
		if r.Off < off {
			if perr := w.f.PunchHole(r.Off, min(r.End, off)-r.Off); err == nil {
				err = perr
			}
		}
	}
	if cerr := w.f.Close(); err == nil {
		err = cerr
	}
	return err
}

// Close closes the file and leaves it as it is.
func (w *Writer) Close() error { return w.f.Close() }
