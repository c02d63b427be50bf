package segment

import (
	"errors"
	"fmt"
)

var (
	// ErrForeign: an intact file that belongs to another store or was another segment.
	ErrForeign = errors.New("segment does not belong here")
	// ErrUnsealed: there is no intact footer; scan the segment.
	ErrUnsealed = errors.New("segment is not sealed")
	// ErrOlder: a program before the first release wrote the segment.
	ErrOlder = fmt.Errorf(
		"this program reads version %d and later: copy the files out with the program that wrote them", Oldest)
	// ErrFull: the segment takes no more records.
	ErrFull = errors.New("segment is full")
	// ErrClosed: the Files were closed, and with them the store.
	ErrClosed = errors.New("the store is closed")
)
