package logs

import (
	"io"
	"os"
	"path/filepath"
	"time"

	"ckptfs/fs/tree"
)

// Place is where a daemon logs: a file, or else the one in its store, or else nowhere.
type Place struct {
	File    string // absolute
	Store   string // "": not there
	Foreign bool   // the store may be another user's
}

// InStore reports whether the log is the one in the store.
func (p Place) InStore() bool { return p.File == "" && p.Store != "" }

// Path is the log; "": there is none.
func (p Place) Path() string {
	if p.InStore() {
		return filepath.Join(p.Store, tree.LogFile)
	}
	return p.File
}

// Open opens the log, in a store that this process has not opened.
func (p Place) Open() (*os.File, error) {
	if !p.InStore() {
		return Open(p.File)
	}
	d, err := tree.OpenStore(p.Store, p.Foreign)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Open(tree.LogFile, Flags, 0o600)
}

// patience is how long Append waits for a disk.
const patience = 2 * time.Second

// Append writes what is to be in the log to it, without keeping it open. What the log does not take, or not
// soon, goes to otherwise.
func (p Place) Append(text []byte, otherwise io.Writer) {
	if p.Path() == "" {
		_, _ = otherwise.Write(text)
		return
	}
	done := make(chan error, 1)
	go func() {
		f, err := p.Open()
		if err == nil {
			_, err = f.Write(text)
			f.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			return
		}
	case <-time.After(patience):
	}
	_, _ = otherwise.Write(text)
}
