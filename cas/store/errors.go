package store

import (
	"errors"
	"fmt"
	"io/fs"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

var (
	// ErrIndexAhead: the index knows of more than the segments hold, so it belongs to a later state of them.
	// It must be deleted and built again: chunks that it claims to be held are not.
	ErrIndexAhead = errors.New("the index is ahead of the segments")
	// ErrNeedsRecovery: the store was not closed in order, and is to be opened without changing it.
	ErrNeedsRecovery = errors.New(
		"the store was not closed in order, and only an opening for writing can repair it")
	// ErrSweeping: another sweep is under way. It is EBUSY.
	ErrSweeping error = cas.BusyError("another sweep is under way: try again once it has ended")
	// ErrClosed: the store was closed.
	ErrClosed = segment.ErrClosed
	// ErrBatchDone: the batch was committed or released.
	ErrBatchDone = errors.New("the batch is done")

	// errMissing: the index knows of a segment that is not there. It is fs.ErrNotExist.
	errMissing = fmt.Errorf("the segment is missing: %w", fs.ErrNotExist)
	// errIndexCorrupt marks what the index itself found damaged in it.
	errIndexCorrupt = errors.New("the index is damaged")
)
