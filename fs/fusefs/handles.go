package fusefs

import (
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fs/content"
	"ckptfs/fs/handover"
	"ckptfs/fs/names"
	"ckptfs/fs/volume"
)

// handles are the open files and directories, by the numbers that the kernel has of them. What a number
// stands for is written down where the process that serves the mount next finds it.
type handles struct {
	table *handover.Handles

	mu   sync.Mutex
	open map[uint64]any // *volume.Handle or *names.DirHandle
	// past are the handles of earlier processes by the requests that opened them. The kernel may not know the
	// answer to such a request, and then sends it again.
	past  map[uint64]uint64
	extra uint64 // how many numbers were given that the table has no room for
}

// unlisted marks the numbers that the table has no room for: no other process finds what they stand for.
const unlisted = 1 << 63

func newHandles(table *handover.Handles) *handles {
	return &handles{table: table, open: map[uint64]any{}, past: map[uint64]uint64{}}
}

// add gives a number to what a request opened. what is as the next process is to open it again.
func (t *handles) add(h any, by *fuse.InHeader, what handover.Handle) uint64 {
	what.Unique = by.Unique &^ resent
	fh, ok := t.table.Add(what)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ok {
		t.extra++
		fh = unlisted | t.extra
	}
	t.open[fh] = h
	return fh
}

// restore notes what was opened again that an earlier process had open.
func (t *handles) restore(fh, unique uint64, h any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[fh] = h
	t.past[unique] = fh
}

// again returns what an earlier process opened for a request that the kernel sends again; nil: nothing.
func (t *handles) again(by *fuse.InHeader) (fh uint64, h any) {
	if by.Unique&resent == 0 {
		return 0, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fh = t.past[by.Unique&^resent]
	return fh, t.open[fh]
}

// noneAgain says that no request comes again any more.
func (t *handles) noneAgain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.past)
}

func (t *handles) get(fh uint64) any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[fh]
}

func (t *handles) file(fh uint64) *volume.Handle {
	h, _ := t.get(fh).(*volume.Handle)
	return h
}

func (t *handles) dir(fh uint64) *names.DirHandle {
	h, _ := t.get(fh).(*names.DirHandle)
	return h
}

// release ends an open file or directory. It is written down until then: a process that takes over before
// releases it.
func (t *handles) release(fh uint64) {
	t.end(fh)
	fault(opRelease, "did")
	if fh&unlisted == 0 {
		t.table.Remove(fh)
	}
}

// ending in a handle's mode says that its release has begun: the kernel may have no backing of its number any
// more.
const ending = 1 << 31

// end is release, but for what is written down.
func (t *handles) end(fh uint64) {
	switch h := t.take(fh).(type) {
	case *volume.Handle:
		if x, ok := t.table.Get(fh); ok && h.Mode == content.Passthrough {
			x.Mode |= ending
			t.table.Set(fh, x)
		}
		h.Release()
	case *names.DirHandle:
		h.Release()
	}
}

// take returns what a number stands for, and is the last to do so. What is not there any more may be asked
// for again: by a request that was done, and not answered.
func (t *handles) take(fh uint64) any {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.open[fh]
	delete(t.open, fh)
	return h
}

// refused ends what an earlier process opened for a request that the kernel is told has failed.
func (t *handles) refused(in *fuse.InHeader) {
	if fh, h := t.again(in); h != nil {
		t.release(fh)
	}
}
