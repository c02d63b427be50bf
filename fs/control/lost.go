package control

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Loss is what the disk did not take of what was written, though write(2) succeeded.
type Loss struct {
	// Files may have lost bytes, until they are written again; More is how many there are besides, which only
	// the log names.
	Files []Failure `json:"files"`
	More  int       `json:"more,omitempty"`
	Other string    `json:"other,omitempty"` // what no file tells of
}

// After is err, or else says that bytes may be lost. l may be nil: none are.
func (l *Loss) After(err error) error {
	if err != nil || l == nil {
		return err
	}
	if n := len(l.Files) + l.More; n > 0 {
		return fmt.Errorf("%d files may have lost bytes, for the disk did not take all that was written to them: write them again from nothing, or remove them", n)
	}
	return errors.New(l.Other)
}

// NameFailures names the files that may have lost bytes, and those that something failed of, a line each.
// printable makes a text fit for a terminal.
func (s *Status) NameFailures(w io.Writer, printable func(string) string) {
	if l := s.Loss; l != nil {
		for _, f := range l.Files {
			fmt.Fprintf(w, "lost: %s: the disk did not take all that was written to it: %s (since %s)\n",
				printable(f.Path), printable(f.Reason), f.Since.Format(time.DateTime))
		}
		if l.More > 0 {
			fmt.Fprintf(w, "lost: %d more, which the log names\n", l.More)
		}
	}
	for _, f := range s.Failures {
		attempts := "attempts"
		if f.Attempts == 1 {
			attempts = "attempt"
		}
		fmt.Fprintf(w, "failed: %s: %s (%d %s since %s)\n", printable(f.Path), printable(f.Reason), f.Attempts,
			attempts, f.Since.Format(time.DateTime))
	}
}
