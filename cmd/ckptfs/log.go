package main

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// logWriter keeps what is logged before the store, in which the log lies, is known to be good and ours.
type logWriter struct {
	mu    sync.Mutex
	early bytes.Buffer
	to    io.Writer // nil while early collects
}

func (l *logWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.to == nil {
		return l.early.Write(p)
	}
	return l.to.Write(p)
}

// attach writes out what was kept and everything from now on.
func (l *logWriter) attach(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = w.Write(l.early.Bytes()) // a log that cannot be written must not end the mount
	l.early = bytes.Buffer{}
	l.to = w
}

func newLogger(w io.Writer, format, level string) *slog.Logger {
	lv, _ := parseLevel(level) // checked with the command line
	opt := &slog.HandlerOptions{Level: lv}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}

func parseLevel(s string) (slog.Level, error) {
	var l slog.Level
	err := l.UnmarshalText([]byte(s))
	return l, err
}

const logFlags = os.O_CREATE | os.O_APPEND | os.O_WRONLY

// openLog opens a log file to append to. It follows no link.
func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, logFlags|unix.O_NOFOLLOW, 0o600)
}

// openStoreLog opens the log in a store that this process has not opened yet.
func openStoreLog(store string, foreign bool) (*os.File, error) {
	d, err := tree.OpenStore(store, foreign)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Open(tree.LogFile, logFlags, 0o600)
}

// redirect lets standard error, where the runtime writes a crash, go to f, and gives the terminal back.
func redirect(f *os.File) error {
	for _, fd := range []int{1, 2} {
		if err := unix.Dup3(int(f.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}
