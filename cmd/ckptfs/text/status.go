package text

import (
	"fmt"
	"io"
	"time"

	"ckptfs/fs/control"
)

// NameFailures names the files that may have lost bytes, and those that something failed of, a line each.
func NameFailures(w io.Writer, s *control.Status) {
	if l := s.Loss; l != nil {
		for _, f := range l.Files {
			fmt.Fprintf(w, "lost: %s: the disk did not take all that was written to it: %s (since %s)\n",
				Printable(f.Path), Printable(f.Reason), f.Since.Format(time.DateTime))
		}
		if l.More > 0 {
			fmt.Fprintf(w, "lost: %d more, which the log names\n", l.More)
		}
	}
	for _, f := range s.Failures {
		fmt.Fprintf(w, "failed: %s: %s (%s since %s)\n", Printable(f.Path), Printable(f.Reason),
			Plural(int64(f.Attempts), "attempt"), f.Since.Format(time.DateTime))
	}
}

// NamePlain names the files that stay plain though they are to be packed, a line each: that is no failure.
func NamePlain(w io.Writer, s *control.Status) {
	for _, f := range s.Plain {
		fmt.Fprintf(w, "ckptfs: %s stays plain: %s\n", Printable(f.Path), Printable(f.Reason))
	}
}

// Everything is all that is to be packed, in words, or all but what NamePlain names.
func Everything(s *control.Status) string {
	if len(s.Plain) > 0 {
		return "everything else"
	}
	return "everything"
}
