package control

import (
	"context"
	"fmt"
	"io"
)

// NamePlain names the files that stay plain though they are to be packed, a line each: that is no failure.
// printable makes a text fit for a terminal.
func (s *Status) NamePlain(w io.Writer, printable func(string) string) {
	for _, f := range s.Plain {
		fmt.Fprintf(w, "ckptfs: %s stays plain: %s\n", printable(f.Path), printable(f.Reason))
	}
}

// Everything is all that is to be packed, in words, or all but what NamePlain names.
func (s *Status) Everything() string {
	if len(s.Plain) > 0 {
		return "everything else"
	}
	return "everything"
}

// NamePlain asks for the status and names such files, if the daemon answers.
func (c *Client) NamePlain(ctx context.Context, w io.Writer, printable func(string) string) {
	if s, err := c.Status(ctx); err == nil {
		s.NamePlain(w, printable)
	}
}
