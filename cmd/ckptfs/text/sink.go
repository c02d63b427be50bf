package text

import (
	"io"
	"os"
	"sync/atomic"
)

// Sink passes on what is written to it, and remembers the first write that failed: what prints a table does
// not look at each line.
type Sink struct {
	to   io.Writer
	fail atomic.Pointer[error]
}

// NewSink is a Sink before w.
func NewSink(w io.Writer) *Sink { return &Sink{to: w} }

// Write implements io.Writer.
func (s *Sink) Write(p []byte) (int, error) {
	n, err := s.to.Write(p)
	if err != nil {
		s.fail.CompareAndSwap(nil, &err)
	}
	return n, err
}

// ReadFrom lets a file take bytes from another one without a copy. Who calls it is told of every error.
func (s *Sink) ReadFrom(r io.Reader) (int64, error) { return io.Copy(s.to, r) }

// Err is the first error of a write.
func (s *Sink) Err() error {
	if err := s.fail.Load(); err != nil {
		return *err
	}
	return nil
}

// File is the file that is written to; nil: it is none.
func File(w io.Writer) *os.File {
	if s, ok := w.(*Sink); ok {
		w = s.to
	}
	f, _ := w.(*os.File)
	return f
}
