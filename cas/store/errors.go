package store

import "errors"

var (
	// ErrIndexAhead: the index knows of more than the segments hold, so it belongs to a later state of them. It must be
	// deleted and built again: chunks that it claims to be held are not.
	ErrIndexAhead = errors.New("the index is ahead of the segments")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("the store is closed")
	// ErrBatchDone: the batch was committed or aborted.
	ErrBatchDone = errors.New("the batch is done")
)
