// Package logs is the daemon's log: a file in the store, one that the user names, or standard error.
package logs

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// mostEarly bounds what is kept, in bytes.
const mostEarly = 1 << 20

// Writer keeps what is logged before the store, in which the log lies, is known to be good and ours, or while
// the log cannot be opened.
type Writer struct {
	mu    sync.Mutex
	early bytes.Buffer
	to    io.Writer // nil while early collects

	file    *os.File // of To
	crashes bool     // it is to have what goes to standard error
}

// Write keeps p, or writes it to what is attached.
func (l *Writer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.to == nil {
		if l.early.Len()+len(p) > mostEarly {
			l.early.Reset()
		}
		return l.early.Write(p)
	}
	return l.to.Write(p)
}

// Attach writes out what was kept and everything from now on.
func (l *Writer) Attach(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = w.Write(l.early.Bytes()) // a log that cannot be written must not end the mount
	l.early = bytes.Buffer{}
	l.to = w
}

// To opens a log and attaches it, and has it take what goes to standard error, once Crashes was called.
func (l *Writer) To(open func() (*os.File, error)) func() (end func(), err error) {
	return func() (func(), error) {
		f, err := open()
		if err != nil {
			return nil, err
		}
		l.Attach(f)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.file = f; l.crashes {
			err = Redirect(f)
		}
		return func() {}, err
	}
}

// Crashes lets standard error go to the log that To opens, or has opened.
func (l *Writer) Crashes() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crashes = true
	if l.file == nil {
		return nil
	}
	return Redirect(l.file)
}

// New makes a logger; format is text or json, and level one that ParseLevel takes.
func New(w io.Writer, format, level string) *slog.Logger {
	lv, _ := ParseLevel(level) // checked with the command line
	opt := &slog.HandlerOptions{Level: lv}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}

// ParseLevel is the level of a word: debug, info, warn or error.
func ParseLevel(s string) (slog.Level, error) {
	var l slog.Level
	err := l.UnmarshalText([]byte(s))
	return l, err
}

// Flags are open(2)'s for a log.
const Flags = os.O_CREATE | os.O_APPEND | os.O_WRONLY

// Open opens a log file to append to. It follows no link.
func Open(path string) (*os.File, error) {
	return os.OpenFile(path, Flags|unix.O_NOFOLLOW, 0o600)
}

// Redirect lets standard error, where the runtime writes a crash, go to f, and gives the terminal back.
func Redirect(f *os.File) error {
	for _, fd := range []int{1, 2} {
		if err := unix.Dup3(int(f.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}
