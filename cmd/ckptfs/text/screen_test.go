package text

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"ckptfs/cmd/ckptfs/text/texttest"
	"ckptfs/fs/control"
)

func TestPaints(t *testing.T) {
	x := texttest.New(t, 100, 30)
	if !bool(Paints(x.File)) || !Terminal(x.File) {
		t.Error("a terminal has no colours")
	}
	if Paints(&bytes.Buffer{}) || !Paints(Painted{&bytes.Buffer{}, true}) {
		t.Error("what is no terminal has colours, or not as it says")
	}
	if columns, rows := Size(x.File); columns != 100 || rows != 30 {
		t.Errorf("%d by %d", columns, rows)
	}
	if columns, rows := Size(&bytes.Buffer{}); columns != 80 || rows != 0 {
		t.Errorf("no terminal: %d by %d", columns, rows)
	}
	t.Setenv("NO_COLOR", "1")
	if bool(Paints(x.File)) || !Terminal(x.File) {
		t.Error("NO_COLOR is not heeded")
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	if bool(Paints(x.File)) || Terminal(x.File) {
		t.Error("TERM=dumb is not heeded")
	}
}

// Colours change no column of a table.
func TestPaintedTable(t *testing.T) {
	table := func(paint Paint) string {
		var b bytes.Buffer
		Table(Painted{&b, paint}, []string{"A", ">B"}, [][]string{{paint.Bad("torn"), "1"},
			{"é", paint.Best("200")}, {paint.Doubtful(""), ""}})
		return b.String()
	}
	painted := table(true)
	for _, code := range []string{bold, red, green, plain} {
		if !strings.Contains(painted, code) {
			t.Errorf("no %q in %q", code, painted)
		}
		painted = strings.ReplaceAll(painted, code, "")
	}
	if want := table(false); painted != want || strings.Contains(want, "\x1b") {
		t.Errorf("%q, without colours %q", painted, want)
	}
}

func TestLogInColour(t *testing.T) {
	var b bytes.Buffer
	if err := Log(Painted{&b, true}, logOf(someSteps)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), red+"torn"+plain) || strings.Contains(b.String(), "no\x1b") {
		t.Errorf("%q", b.String())
	}
}

func TestStatusInColour(t *testing.T) {
	var b bytes.Buffer
	Status(Painted{&b, true}, &control.Status{Failures: []control.Failure{{Path: "x", Reason: "full"}}})
	if !strings.Contains(b.String(), red+"failed"+plain+": x: full") {
		t.Errorf("%q", b.String())
	}
}

func number(n int) func(io.Writer) { return func(w io.Writer) { fmt.Fprintln(w, "is", n) } }

// Off a terminal an empty line stands between two, and as JSON each is a line.
func TestWatch(t *testing.T) {
	var b bytes.Buffer
	w := NewWatch(&b, false)
	w.Show(1, number(1))
	w.Failed(errors.New("gone"))
	w.Show(2, number(2))
	w.End()
	if want := "is 1\n\nno answer: gone\n\nis 2\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	b.Reset()
	w = NewWatch(&b, true)
	w.Show(map[string]int{"a<": 1}, nil)
	w.Failed(errors.New("gone"))
	w.Show(map[string]int{"a<": 2}, nil)
	w.End()
	if want := "{\"a<\":1}\n{\"a<\":2}\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	broken := NewWatch(writer(func([]byte) (int, error) { return 0, io.ErrClosedPipe }), false)
	if err := broken.Show(1, number(1)); err == nil || !broken.Broken() {
		t.Errorf("nobody reads: %v", err)
	}
}

// A terminal shows a page in its place, and the last one after the end.
func TestWatchOnTerminal(t *testing.T) {
	x := texttest.New(t, 20, 4)
	w := NewWatch(x.File, false)
	w.Show(1, number(1))
	w.Show(2, func(w io.Writer) {
		fmt.Fprintln(w, Paints(w).Bad("bad"))
		fmt.Fprintf(w, "%s\n\nx\ny\n", strings.Repeat("l", 21))
	})
	w.End()
	got := strings.ReplaceAll(x.End(), "\r\n", "\n")
	page := red + "bad" + plain
	want := enterPage + home + "is 1" + endLine + endPage +
		home + page + endLine + "\n" + strings.Repeat("l", 21) + endLine + "\n… 3 lines more" + endLine +
		endPage +
		leavePage + page + "\n" + strings.Repeat("l", 21) + "\n\nx\ny\n"
	if got != want {
		t.Errorf("%q\nwant\n%q", got, want)
	}
	x = texttest.New(t, 20, 4)
	NewWatch(x.File, false).End() // nothing was shown
	if got := x.End(); got != "" {
		t.Errorf("%q", got)
	}
}

func TestFitting(t *testing.T) {
	for _, tc := range []struct {
		lines, rows, want int
	}{{3, 0, 3}, {3, 3, 3}, {4, 3, 3}, {1, 1, 1}, {2, 1, 1}, {100, 24, 24}} {
		page := strings.Repeat("x\n", tc.lines)
		if got := fitting([]byte(page), 80, tc.rows); len(got) != tc.want {
			t.Errorf("%d lines in %d rows: %q", tc.lines, tc.rows, got)
		}
	}
}
