package content

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/formats/detect"
	"ckptfs/fs/tree"
)

// smallFile is a size in bytes: a file below it that is no checkpoint stays as it is.
const smallFile = 64 << 10

// settleSmallLocked finds, at the last close, that a small file stays as it is: nothing is written for it,
// and it does not wait for its turn. false when it has to.
func (f *File) settleSmallLocked() bool {
	if f.src.raw == nil || !f.bytes.dirty || f.rec != (tree.Record{}) {
		return false
	}
	var st unix.Stat_t
	raw := f.src.raw
	if unix.Fstat(int(raw.Fd()), &st) != nil || st.Size >= smallFile || f.c.mayBeWritten(raw, f.src.rw) {
		return false
	}
	head, err := readHead(raw, st.Size)
	if err != nil || isCheckpoint(head, st.Size) || tree.LooksHollow(head, f.c.ID) {
		return false
	}
	f.bytes.dirty = false
	f.c.events.Plain(f)
	return true
}

// sniffed is how much of a file's head is looked at to tell what it is.
const sniffed = 4096

// readHead reads the first bytes of a file; none of a file that is shorter than a header.
func readHead(raw *os.File, size int64) ([]byte, error) {
	if size < tree.HeaderSize {
		return nil, nil
	}
	head := make([]byte, min(size, sniffed))
	if _, err := raw.ReadAt(head, 0); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return head, nil
}

// StaysPlain reports whether a file of these bytes is left as it is when it is saved on a mount: it is small
// and no checkpoint, or has holes. cp(1) makes holes of zeros in what it copies of views and computed files:
// so a checkpoint may have some.
func StaysPlain(raw *os.File, size int64) (bool, error) {
	head, err := readHead(raw, size)
	if err != nil {
		return false, err
	}
	return staysPlain(raw, head, size)
}

func staysPlain(raw *os.File, head []byte, size int64) (bool, error) {
	checkpoint := isCheckpoint(head, size)
	if size < smallFile && !checkpoint {
		return true, nil
	}
	holes, err := tree.HasHoles(int(raw.Fd()), size)
	if err != nil || !holes || !checkpoint {
		return holes, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(raw.Fd()), &st); err != nil {
		return false, err
	}
	return size > maxSparse && st.Blocks*512 < size/2, nil
}

// maxSparse is a size in bytes: a checkpoint above it stays as it is if more than half of it is holes. A
// local copy of a packed file has none.
const maxSparse = 16 << 20

// isCheckpoint reports whether a file of this head and size is worth packing though it is small.
func isCheckpoint(head []byte, size int64) bool {
	return size >= tree.HeaderSize && detect.Sniff(head, size)
}
