package segment

import "errors"

var (
	// ErrForeign: an intact file that belongs to another store or was another segment.
	ErrForeign = errors.New("segment does not belong here")
	// ErrUnsealed: there is no intact footer; scan the segment.
	ErrUnsealed = errors.New("segment is not sealed")
	// ErrFull: the segment takes no more records.
	ErrFull = errors.New("segment is full")
)
