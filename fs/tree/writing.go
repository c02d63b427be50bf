package tree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
)

// WritingFile is the file of Writing, in the store's folder.
const WritingFile = "writing"

// Writing knows which files have writers, and which had one that ended before it was done: as a daemon died,
// or as the program was killed. Those are torn, until a program writes them to an end or they go. It is a
// file that is written to and never synced: what a killed process wrote is there. After a power cut it may
// lack names, and a file may pass for whole that is not.
//
//	offset size
//	     0    8  "ckptopen"
//	     8    8  inode number of tree/
//	    16    8  time of birth of tree/, ns since 1970; 0: not known
//	    24    8  zero
//	    32   32  what Settle noted, zero: nothing
//	    64   8n  slots: an inode number, 0: free; the highest bit set: torn
//
// What Settle noted stays until Unsettle: it tells the next process, also after a kill, that nothing in the
// tree changed since. It is to name the boot, since a power cut may bring an old one back.
//
// A file that belongs to another tree/, since the store was copied, says nothing. Without the file, or
// without room in it, files are not torn.
type Writing struct {
	mu locks.Mutex[writingLock]
	// the file, mapped, since a write(2) for each open and close costs a fifth of a create; nil: nothing is
	// kept
	m     []byte
	slots map[uint64]int
	torn  map[uint64]bool
	free  []int
	next  int // slots from here on were never used

	// Was is what the last process left noted; zero: nothing.
	Was     cas.Hash
	settled atomic.Bool // something is noted
	remove  func()      // the file, which says more than is so
}

const (
	writingNoted  = 32
	writingHeader = 64
	writingSlots  = 8192
	writingTorn   = 1 << 63
	writingMagic  = "ckptopen"
)

// OpenWriting reads what the last process left in d. clean says that it ended in order, so that what it was
// writing was written. With readOnly set nothing is changed.
func OpenWriting(d *disk.Folder, clean, readOnly bool) (*Writing, error) {
	w := &Writing{slots: map[uint64]int{}, torn: map[uint64]bool{}}
	flags := unix.O_RDWR | unix.O_CREAT
	if readOnly {
		flags = unix.O_RDONLY
	}
	f, err := d.Open(WritingFile, flags, 0o600)
	if err != nil {
		if readOnly && errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return w, err
	}
	head, err := writingHead(d)
	if err != nil {
		f.Close()
		return w, err
	}
	p := make([]byte, writingHeader+8*writingSlots)
	n, _ := f.ReadAt(p, 0)
	p = p[:n]
	var left []uint64
	if len(p) >= writingHeader && [writingNoted]byte(p) == [writingNoted]byte(head[:]) {
		w.Was = cas.Hash(p[writingNoted:])
		for p = p[writingHeader:]; len(p) >= 8; p = p[8:] {
			if ino := binary.LittleEndian.Uint64(p); ino != 0 && (!clean || ino&writingTorn != 0) {
				left = append(left, ino&^writingTorn)
			}
		}
	}
	for _, ino := range left {
		w.torn[ino] = true
	}
	if readOnly {
		return w, f.Close()
	}
	// Written in one piece: a kill leaves the old or the new. In full, so that a disk that has no room says
	// so here.
	out := make([]byte, writingHeader+8*max(writingSlots, len(w.torn)))
	copy(out, head[:])
	copy(out[writingNoted:], w.Was[:])
	w.settled.Store(!w.Was.IsZero())
	for ino := range w.torn {
		binary.LittleEndian.PutUint64(out[writingHeader+8*w.next:], ino|writingTorn)
		w.slots[ino] = w.next
		w.next++
	}
	w.remove = func() { _ = d.Remove(WritingFile) }
	old := f
	defer old.Close()
	if f, err = w.renew(d, out); err == nil {
		defer f.Close()
		w.m, err = unix.Mmap(int(f.Fd()), 0, len(out), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED|unix.MAP_POPULATE)
		old = f
	}
	if err != nil && !w.Was.IsZero() { // nothing takes the note away any more
		if _, err := old.WriteAt(make([]byte, len(w.Was)), writingNoted); err != nil {
			w.remove()
		}
		w.Was = cas.Hash{}
		w.settled.Store(false)
	}
	return w, err
}

// renew puts a new file in the place of the old one.
func (w *Writing) renew(d *disk.Folder, p []byte) (*os.File, error) {
	const tmp = WritingFile + ".new"
	f, err := NewFile(d, tmp)
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(p); err == nil {
		err = d.Rename(tmp, WritingFile)
	}
	if err != nil {
		f.Close()
		_ = d.Remove(tmp)
		return nil, err
	}
	return f, nil
}

func writingHead(d *disk.Folder) (head [writingHeader]byte, err error) {
	t, err := d.Sub(TreeDir)
	if err != nil {
		return head, err
	}
	defer t.Close()
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, t.Here(), 0, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return head, fmt.Errorf("%s: %w", TreeDir, err)
	}
	copy(head[:], writingMagic)
	binary.LittleEndian.PutUint64(head[8:], st.Ino)
	if st.Mask&unix.STATX_BTIME != 0 {
		binary.LittleEndian.PutUint64(head[16:], uint64(st.Btime.Sec*1e9+int64(st.Btime.Nsec)))
	}
	return head, nil
}

// Begin notes that a file has a writer.
func (w *Writing) Begin(ino uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unsettleLocked()
	delete(w.torn, ino)
	at, ok := w.slots[ino]
	if !ok {
		switch n := len(w.free); {
		case n > 0:
			at = w.free[n-1]
			w.free = w.free[:n-1]
		case w.next < writingSlots:
			at = w.next
			w.next++
		default:
			at = -1
		}
		w.slots[ino] = at
	}
	w.setLocked(at, ino)
}

// Gone notes that a file has no name any more. Writers keep it.
func (w *Writing) Gone(ino uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.torn[ino] {
		w.endLocked(ino)
	}
}

// End notes that a file has no writer any more. torn: not all that was to be written was.
func (w *Writing) End(ino uint64, torn bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.slots[ino]
	if !torn || !ok {
		w.endLocked(ino)
		return
	}
	w.torn[ino] = true
	w.setLocked(at, ino|writingTorn)
}

func (w *Writing) endLocked(ino uint64) {
	delete(w.torn, ino)
	at, ok := w.slots[ino]
	if !ok {
		return
	}
	delete(w.slots, ino)
	w.setLocked(at, 0)
	if at >= 0 {
		w.free = append(w.free, at)
	}
}

// setLocked writes a slot. A disk that is full, or fails, costs the knowledge. w.mu is held.
func (w *Writing) setLocked(at int, ino uint64) {
	w.mu.AssertHeld()
	if at >= 0 {
		w.store(func(m []byte) { binary.LittleEndian.PutUint64(m[writingHeader+8*at:], ino) })
	}
}

// store changes the file, and reports whether it could. w.mu is held.
func (w *Writing) store(change func(m []byte)) (ok bool) {
	w.mu.AssertHeld()
	if w.m == nil {
		return true
	}
	// What cannot be read in, or on some filesystems has no room for a new copy of its block, is a fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { ok = recover() == nil }()
	change(w.m)
	return true
}

// Settle notes something that holds for as long as nothing in the tree changes. It notes nothing while a file
// has a writer, or if something has changed: that is asked when nothing can change any more before the note
// is there, and taken away.
func (w *Writing) Settle(note cas.Hash, changed func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settled.Store(true) // first: who changes something from here on waits for the note
	if len(w.openLocked()) > 0 || changed() {
		w.unsettleLocked()
		return
	}
	w.noteLocked(note)
}

// Unsettle takes the note away. It is to be called before a change of which its caller would not know.
func (w *Writing) Unsettle() {
	if !w.settled.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unsettleLocked()
}

func (w *Writing) unsettleLocked() {
	w.mu.AssertHeld()
	if w.settled.Load() {
		w.noteLocked(cas.Hash{})
		w.settled.Store(false)
	}
}

// noteLocked notes something. A note that cannot be taken away goes with its file.
func (w *Writing) noteLocked(note cas.Hash) {
	w.mu.AssertHeld()
	if !w.store(func(m []byte) { copy(m[writingNoted:], note[:]) }) {
		w.remove()
	}
}

// State reports whether a file has a writer now, and whether it is torn.
func (w *Writing) State(ino uint64) (open, torn bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, slot := w.slots[ino]
	return slot && !w.torn[ino], w.torn[ino]
}

// All is whether it is torn, of every file that is, or has a writer.
func (w *Writing) All() map[uint64]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(map[uint64]bool, len(w.slots))
	for ino := range w.slots {
		all[ino] = false
	}
	for ino := range w.torn {
		all[ino] = true
	}
	return all
}

// Open lists the files that have writers.
func (w *Writing) Open() []uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.openLocked()
}

func (w *Writing) openLocked() (open []uint64) {
	w.mu.AssertHeld()
	for ino := range w.slots {
		if !w.torn[ino] {
			open = append(open, ino)
		}
	}
	return open
}

// Torn is how many files are torn.
func (w *Writing) Torn() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.torn)
}

// Close lets go of the file.
func (w *Writing) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m == nil {
		return nil
	}
	m := w.m
	w.m = nil
	return unix.Munmap(m)
}

// writingLock is a leaf.
type writingLock struct{}

func (writingLock) Rank() (int, string) { return locks.Volume + 985, "Writing.mu" }
