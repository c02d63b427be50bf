package text

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// What a terminal is told for a colour, and for the end of it.
const (
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

// Paint colours what a terminal shows, and nothing that goes elsewhere.
type Paint bool

// Painted is a writer of which it is known whether it may be sent colours.
type Painted struct {
	io.Writer
	Paint Paint
}

// Paints tells whether what is written to w may have colours: w is a terminal that knows them, and its user
// did not turn them off by NO_COLOR (no-color.org).
func Paints(w io.Writer) Paint {
	if p, ok := w.(Painted); ok {
		return p.Paint
	}
	return Paint(Terminal(w) && os.Getenv("NO_COLOR") == "")
}

// Terminal tells whether w is a terminal that can be told more than letters: one that moves its cursor.
func Terminal(w io.Writer) bool {
	f := File(w)
	return f != nil && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// Size is a terminal's, in characters; 80 columns, and no bound on the rows, of what is none.
func Size(w io.Writer) (columns, rows int) {
	if f := File(w); f != nil {
		if columns, rows, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns, rows
		}
	}
	return 80, 0
}

func (p Paint) with(colour, s string) string {
	if !p || s == "" {
		return s
	}
	return colour + s + plain
}

// Head is for the heads of tables and titles.
func (p Paint) Head(s string) string { return p.with(bold, s) }

// Bad is for what failed, is damaged or torn.
func (p Paint) Bad(s string) string { return p.with(red, s) }

// Doubtful is for what is not as it should be, and may become so: being written, waiting.
func (p Paint) Doubtful(s string) string { return p.with(yellow, s) }

// Best is for the best.
func (p Paint) Best(s string) string { return p.with(green, s) }

// width is how many characters a terminal shows of s.
func width(s string) int {
	n := utf8.RuneCountInString(s)
	for {
		_, rest, ok := strings.Cut(s, "\x1b[")
		if !ok {
			return n
		}
		code, after, ok := strings.Cut(rest, "m")
		if !ok {
			return n
		}
		n -= len("\x1b[m") + len(code)
		s = after
	}
}
