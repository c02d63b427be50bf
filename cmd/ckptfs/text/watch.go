package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// What a terminal is told to show a page, and then again what it showed before.
const (
	enterPage = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J" // a screen of its own, no cursor
	leavePage = "\x1b[?25h\x1b[?1049l"
	home      = "\x1b[H"
	endLine   = "\x1b[K"
	endPage   = "\x1b[J"
)

// Watch shows one thing again and again: on a terminal in its place, elsewhere one below the other, an empty
// line between them, and as JSON an object a line. The last one stays on a terminal after End.
type Watch struct {
	to    io.Writer
	json  bool
	place bool // it is shown in its place
	shown int
	last  []byte // that was shown in its place
	err   error  // of writing
}

// NewWatch shows on w.
func NewWatch(w io.Writer, asJSON bool) *Watch {
	return &Watch{to: w, json: asJSON, place: !asJSON && Terminal(w)}
}

// Broken reports whether nothing can be shown any more: a pipe's reader has gone.
func (w *Watch) Broken() bool { return w.err != nil }

// Show shows v, and returns why it cannot.
func (w *Watch) Show(v any, human func(io.Writer)) error {
	var page bytes.Buffer
	if w.json {
		enc := json.NewEncoder(&page)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			return err
		}
	} else {
		human(Painted{&page, Paints(w.to)})
	}
	return w.print(page.Bytes())
}

// Failed shows that there is no answer now. As JSON it shows nothing: each line is an answer.
func (w *Watch) Failed(err error) {
	if !w.json {
		_ = w.print([]byte(Paints(w.to).Bad("no answer") + ": " + Printable(err.Error()) + "\n"))
	}
}

func (w *Watch) print(page []byte) error {
	var out bytes.Buffer
	switch {
	case w.place:
		if w.shown == 0 {
			out.WriteString(enterPage)
		}
		out.WriteString(home)
		columns, rows := Size(w.to)
		for i, line := range fitting(page, columns, rows) {
			if i > 0 {
				out.WriteByte('\n')
			}
			out.WriteString(line + endLine)
		}
		out.WriteString(endPage)
		w.last = page
	default:
		if w.shown > 0 && !w.json {
			out.WriteByte('\n')
		}
		out.Write(page)
	}
	w.shown++
	if _, err := w.to.Write(out.Bytes()); err != nil {
		w.err = err
	}
	return w.err
}

// fitting are the lines of a page that a terminal has room for. Longer ones go on in its next row.
func fitting(page []byte, columns, rows int) []string {
	lines := strings.Split(strings.TrimSuffix(string(page), "\n"), "\n")
	if rows == 0 {
		return lines
	}
	used := 0
	for i, line := range lines {
		used += max(1, (width(line)+columns-1)/columns)
		if used > rows || used == rows && i < len(lines)-1 {
			return append(lines[:i:i], fmt.Sprintf("… %s more", Plural(int64(len(lines)-i), "line")))
		}
	}
	return lines
}

// End leaves the terminal as it was, with the last page below.
func (w *Watch) End() {
	if w.place && w.shown > 0 {
		fmt.Fprintf(w.to, "%s%s", leavePage, w.last)
	}
}
