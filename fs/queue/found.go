package queue

import (
	"io"

	"ckptfs/fs/content"
	"ckptfs/fs/order"
)

// mostFound is how many files may be found before they are put in order without those to come.
const mostFound = 1 << 17

// found are the files that were found unpacked. It is guarded by Queue.mu.
type found struct {
	files map[*content.File]foundFile // that are not in order yet; pinned
	due   bool                        // those that there are are to be put in order
	busy  bool                        // a worker does so
	// family is that of a file that waits or is packed, and is one of several of it.
	family map[*content.File]int32
	last   int32 // family
	most   int   // mostFound
}

// foundFile is a file as it was found.
type foundFile struct{ mtime, size int64 }

func newFound() found {
	return found{files: map[*content.File]foundFile{}, family: map[*content.File]int32{},
		most: mostFound}
}

// isDue reports whether there is something to be put in order, and nobody does so.
func (n *found) isDue() bool { return n.due && !n.busy }

// Found has a file wait that was not closed just now: a start finds it unpacked, or its folder came as it is.
// mtime is when it was changed last, in nanoseconds. It has its turn after a Settle. f's mutex is held.
func (q *Queue) Found(f *content.File, mtime int64) {
	enter(q, f, func(size int64) {
		q.found.files[f] = foundFile{mtime, size}
		q.found.due = q.found.due || len(q.found.files) >= q.found.most
	})
}

// Settle says that all files that are there were found: they may be packed.
func (q *Queue) Settle() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.found.due = len(q.found.files) > 0
	q.changedLocked()
}

// arrangeLocked puts the files that were found in order, behind those that are queued. mu is given back
// meanwhile: other workers pack what is closed.
func arrangeLocked(q *Queue) {
	q.mu.AssertHeld()
	n := &q.found
	n.due, n.busy = false, true
	batch := make([]*content.File, 0, len(n.files))
	for f := range n.files {
		batch = append(batch, f)
	}
	q.mu.Unlock()
	var files order.Files
	held := batch[:0]
	for _, f := range batch {
		if q.ctx.Err() != nil {
			break
		}
		is, ok := holdFound(q, f)
		if !ok {
			continue
		}
		files.Add(f.Path(), is.mtime, look(f, is.size))
		f.Unpin()
		held = append(held, f)
	}
	sorted := files.Sorted()
	q.mu.Lock()
	n.busy = false
	for _, i := range sorted {
		f := held[i]
		if _, still := n.files[f]; !still {
			continue // it was removed, or the queue stopped
		}
		delete(n.files, f)
		q.queued = append(q.queued, f)
		if k := files.Family(i); k > 0 {
			n.family[f] = n.last + k
		}
	}
	n.last += int32(len(held))
	q.changedLocked()
}

// holdFound pins a file that is not in order yet. It is false when the file is there no longer.
func holdFound(q *Queue, f *content.File) (is foundFile, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if is, ok = q.found.files[f]; ok {
		f.Pin()
	}
	return is, ok
}

// look looks at a file's tensors. One that is written or cannot be read has none: its turn tells more.
func look(f *content.File, size int64) order.Model {
	if size < order.LeastModel {
		return order.Model{}
	}
	f.Lock()
	is := f.StateLocked()
	if is.Writers > 0 || is.Packed() {
		f.Unlock()
		return order.Model{}
	}
	raw, err := f.OpenQuietly()
	f.Unlock()
	if err != nil {
		return order.Model{}
	}
	defer raw.Close()
	end, err := raw.Seek(0, io.SeekEnd)
	if err != nil {
		return order.Model{}
	}
	return order.Look(raw, end)
}
