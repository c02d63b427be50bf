package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
)

// Code says what kind of failure an Error is. Command line and scripts decide by it, never by the message.
type Code string

const (
	CodeInternal Code = "internal"
	// the request makes no sense, because of the user, or of programs of different versions
	CodeInvalid     Code = "invalid"
	CodeNotFound    Code = "not_found"    // no such file
	CodeDenied      Code = "denied"       // not this user
	CodeBusy        Code = "busy"         // in use: the mountpoint, a file
	CodeNewer       Code = "newer"        // written by a newer version
	CodeCorrupt     Code = "corrupt"      // bytes that are not what was written
	CodeNoSpace     Code = "no_space"     // the disk or the quota is full
	CodeCancelled   Code = "cancelled"    // by the caller
	CodeUnavailable Code = "unavailable"  // the daemon is not there, or went away
	CodeUnsupported Code = "not_possible" // not in this state: unmounting what is not mounted
	CodeUnreachable Code = "unreachable"  // the object store of a remote
	CodeRefused     Code = "refused"      // by the object store: credentials
	CodeUnfit       Code = "unfit"        // the object store: it does not keep conditions, or what it had
	CodeConflict    Code = "conflict"     // others changed what was to be published, or read
)

// Error is a failure as it travels: it reads the same on both sides of the wire, and errors.Is finds the
// errno and the sentinels of package cas in it on both.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Errno   string `json:"errno,omitempty"` // "ENOENT"
	Do      string `json:"do,omitempty"`    // what may help
}

func (e *Error) Error() string { return e.Message }

// NotFound is the failure to find what was asked for, in a sentence: no text of an errno follows it.
func NotFound(format string, args ...any) *Error {
	return &Error{Code: CodeNotFound, Errno: "ENOENT", Message: fmt.Sprintf(format, args...)}
}

// NoData is NotFound of what is not known of a file that may be there.
func NoData(format string, args ...any) *Error {
	return &Error{Code: CodeNotFound, Errno: "ENODATA", Message: fmt.Sprintf(format, args...)}
}

// Invalid is a request that makes no sense, in a sentence.
func Invalid(format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Errno: "EINVAL", Message: fmt.Sprintf(format, args...)}
}

// Busy is a request about something that is in use.
func Busy(message string) *Error {
	return &Error{Code: CodeBusy, Errno: "EBUSY", Message: message}
}

// Unwrap gives the errno and the sentinel that the error stands for.
func (e *Error) Unwrap() []error {
	var errs []error
	if n, ok := errnoByName()[e.Errno]; ok {
		errs = append(errs, n)
	}
	switch e.Code {
	case CodeNewer:
		errs = append(errs, cas.ErrNewer)
	case CodeCorrupt:
		errs = append(errs, cas.ErrCorrupt)
	case CodeCancelled:
		errs = append(errs, context.Canceled)
	case CodeUnreachable:
		errs = append(errs, bucket.ErrUnreachable)
	case CodeRefused:
		errs = append(errs, bucket.ErrDenied)
	case CodeUnfit:
		errs = append(errs, bucket.ErrUnfit)
	}
	return errs
}

// errnoByName is the reverse of unix.ErrnoName.
var errnoByName = sync.OnceValue(func() map[string]syscall.Errno {
	m := make(map[string]syscall.Errno)
	for n := syscall.Errno(1); n < 256; n++ {
		if name := unix.ErrnoName(n); name != "" {
			m[name] = n
		}
	}
	return m
})

// AsError is err as it travels. An error that has no code gets one from its errno.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return &Error{Code: e.Code, Message: err.Error(), Errno: e.Errno, Do: e.Do}
	}
	e = &Error{Code: CodeInternal, Message: err.Error(), Do: bucket.Advice(err)}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		e.Errno = unix.ErrnoName(errno)
	}
	switch {
	case errors.Is(err, context.Canceled):
		e.Code = CodeCancelled
	case errors.Is(err, bucket.ErrUnfit):
		e.Code = CodeUnfit
	case errors.Is(err, bucket.ErrUnreachable): // also since it took too long, which is a DeadlineExceeded
		e.Code = CodeUnreachable
	case errors.Is(err, context.DeadlineExceeded):
		e.Code = CodeCancelled
	case errors.Is(err, bucket.ErrDenied):
		e.Code = CodeRefused
	case errors.Is(err, cas.ErrNewer):
		e.Code = CodeNewer
	case errors.Is(err, cas.ErrCorrupt):
		e.Code = CodeCorrupt
	case errors.Is(err, fs.ErrNotExist):
		e.Code = CodeNotFound
		if e.Errno == "" {
			e.Errno = "ENOENT"
		}
	case errors.Is(err, fs.ErrPermission):
		e.Code = CodeDenied
	case errno == syscall.EBUSY, errno == syscall.ETXTBSY:
		e.Code = CodeBusy
	case errno == syscall.ENOSPC, errno == syscall.EDQUOT:
		e.Code = CodeNoSpace
	}
	return e
}

// status is the HTTP status of an error. Nothing depends on it; it is for people with curl.
func (e *Error) status() int {
	switch e.Code {
	case CodeInvalid:
		return http.StatusBadRequest
	case CodeNotFound:
		return http.StatusNotFound
	case CodeDenied:
		return http.StatusForbidden
	case CodeBusy, CodeUnsupported:
		return http.StatusConflict
	case CodeUnavailable:
		return http.StatusServiceUnavailable
	case CodeNoSpace:
		return http.StatusInsufficientStorage
	}
	return http.StatusInternalServerError
}
