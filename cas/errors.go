package cas

import (
	"errors"
	"fmt"
	"syscall"
)

var (
	// ErrNotFound: no record of that hash is in the store.
	ErrNotFound = errors.New("not in the store")
	// ErrCorrupt: a record was found and its bytes are not what was written. Readers get EIO; nothing is
	// removed.
	ErrCorrupt = errors.New("corrupt")
	// ErrTooLarge: a stated size is past its bound; nothing was allocated.
	ErrTooLarge = errors.New("too large")
	// ErrNewer: written by a newer version of ckptfs than this one.
	ErrNewer = errors.New("written by a newer version of ckptfs")
)

// BusyError is EBUSY in words of its own.
type BusyError string

func (e BusyError) Error() string { return string(e) }

func (BusyError) Unwrap() error { return syscall.EBUSY }

// ChunkError ties an error to the chunk it struck.
type ChunkError struct {
	Hash Hash
	Loc  Location // zero when the chunk was not located
	Err  error
}

func (e *ChunkError) Error() string {
	if e.Loc.Segment == 0 {
		return fmt.Sprintf("chunk %s: %v", e.Hash.Short(), e.Err)
	}
	return fmt.Sprintf("chunk %s in segment %08d at %d: %v", e.Hash.Short(), e.Loc.Segment, e.Loc.Off, e.Err)
}

func (e *ChunkError) Unwrap() error { return e.Err }
