package bucket

import (
	"errors"
	"strconv"
	"strings"
)

// The kinds of errors: what went wrong, as far as a caller does something else about it.
var (
	ErrNotFound     = errors.New("no such object")
	ErrUnchanged    = errors.New("the object has not changed")
	ErrPrecondition = errors.New("the object is not as it was expected to be")
	// ErrConflict: another request for the same key was under way. Nothing was done; it may be tried again.
	ErrConflict = errors.New("another request for the same object was under way")
	// ErrDoubt: a Put or Delete may have been done, or may be done later.
	ErrDoubt = errors.New("the answer was lost: it may have been done")
	ErrRange = errors.New("the range is behind the object's end")
	// ErrDamaged: the engine refused a body because its checksum is another one.
	ErrDamaged = errors.New("the body's checksum is another one")
	// ErrTooLarge: the object exceeds what its reader takes.
	ErrTooLarge = errors.New("the object is too large")
	// ErrCut: the engine gave fewer bytes than it had announced, or none for too long.
	ErrCut = errors.New("the answer was cut off")
	// ErrDenied: the credentials are missing, expired, or do not allow it.
	ErrDenied = errors.New("access denied")
	// ErrNoBucket: there is no such bucket.
	ErrNoBucket = errors.New("no such bucket")
	// ErrBusy: the engine asks to come later, or failed in a way that passes. Nothing was done.
	ErrBusy = errors.New("the engine is busy")
	// ErrUnreachable: no connection, or no answer in time. Nothing was done.
	ErrUnreachable = errors.New("the engine cannot be reached")
	// ErrArchived: the engine has moved the object to where it cannot be read before it is restored.
	ErrArchived = errors.New("the object is archived: have the engine restore it first")
	// ErrFull: no room, or over quota.
	ErrFull = errors.New("the bucket is full")
	// ErrRefused: the engine refused for a reason that none of the other kinds names.
	ErrRefused = errors.New("the engine refused")
	// ErrUnfit: the engine does not do what a remote relies on, or lost what it had acknowledged.
	ErrUnfit = errors.New("the object store is not fit for a remote")
)

// Error is the error of a request.
type Error struct {
	Op   string // get, put, delete, list
	Key  string // "" of a Delete of several
	Kind error  // one of this package
	// Status is that of HTTP, Code and Message the engine's own; 0 and "" where there was no such answer.
	Status        int
	Code, Message string
	Err           error // what it came from; may be nil
}

// Error names the request, the object, the kind, and what the engine said.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Key != "" {
		b.WriteString(" " + e.Key)
	}
	b.WriteString(": " + e.Kind.Error())
	var said []string
	if e.Status != 0 {
		said = append(said, strconv.Itoa(e.Status))
	}
	for _, s := range []string{e.Code, e.Message} {
		if s != "" {
			said = append(said, s)
		}
	}
	switch {
	case len(said) > 0:
		b.WriteString(" (" + strings.Join(said, " ") + ")")
	case e.Err != nil:
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap makes errors.Is find the kind and what the error came from.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}
