package content

import (
	"errors"
	"os"

	"ckptfs/fs/tree"
)

// mayBeWritten reports whether anyone else can still write the open file past this process: by a shared
// mapping that outlived its descriptor, or by a descriptor of an earlier daemon's mount. The kernel grants a
// lease only if not; on a filesystem without leases it is taken to be possible only if the volume has
// passthrough. rw says how raw was opened.
func (c *Files) mayBeWritten(raw *os.File, rw bool) bool {
	var err error
	if rw {
		var release func()
		if release, err = tree.Alone(int(raw.Fd())); err == nil {
			release()
		}
	} else {
		err = tree.NoWriters(int(raw.Fd()))
	}
	return err != nil && (errors.Is(err, tree.ErrInUse) || c.Passthrough.Load())
}

// MappedLocked reports whether a plain file may be written by a mapping that outlived its descriptor: what it
// writes does not count as a change. Once that is impossible, it is so until the file is opened for writing.
func (f *File) MappedLocked() bool {
	f.mu.AssertHeld()
	if f.rec.Packed() || f.bytes.quiet == f.bytes.gen+1 {
		return false
	}
	raw, err := f.OpenQuietly()
	if err != nil {
		return false // the reader meets the error
	}
	defer raw.Close()
	if f.c.mayBeWritten(raw, false) {
		return true
	}
	if f.users.writers == 0 {
		f.bytes.quiet = f.bytes.gen + 1
	}
	return false
}

// outsideLocked reports whether a program may write the file that had it open before there was a mount: the
// kernel is to keep neither its attributes nor its bytes.
func outsideLocked(f *File) bool { return f.c.Outsiders.Load() && f.MappedLocked() }
