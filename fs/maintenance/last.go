package maintenance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// lastVersion is the version of tree.UpkeepFile that is written.
const lastVersion = 1

// maxLast is how long it may be, in bytes. What control.LastCheck.Found has is bounded by an eighth of
// that (maxKnownSize): JSON may write a byte as six.
const maxLast = 1 << 20

// lasted is what tree.UpkeepFile says, as one line of JSON. A later version begins with its version as well.
type lasted struct {
	Version int                `json:"version"`
	Prune   *control.LastPrune `json:"prune,omitempty"`
	Check   *control.LastCheck `json:"check,omitempty"`
}

// Last is the last passes that ended without an error, of this process or of one before it. tree.UpkeepFile
// has them. Nothing hangs on that file: one that cannot be read says nothing, and the next pass replaces it.
// One of a later version stays as it is.
type Last struct {
	Prune atomic.Pointer[control.LastPrune] // nil: none is known
	Check atomic.Pointer[control.LastCheck] // likewise

	// Beside is set of a process that reads the store beside others. What its checks find is written down all
	// the same, with what others have written since the store was opened.
	Beside bool

	mu    sync.Mutex // held while the file is read and written
	newer bool       // a later version wrote the file
}

// Recall reads what an earlier process left, or one beside this one.
func (l *Last) Recall(store *disk.Folder) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.recallLocked(store)
}

func (l *Last) recallLocked(store *disk.Folder) error {
	f, err := store.Open(tree.UpkeepFile, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxLast))
	if err != nil {
		return err
	}
	var head struct{ Version int }
	var was lasted
	if err = json.Unmarshal(b, &head); err == nil && head.Version > lastVersion {
		l.newer = true
		return nil
	}
	if err == nil && head.Version < lastVersion {
		err = errors.New("it has no version")
	}
	if err == nil {
		err = json.Unmarshal(b, &was)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", store.Join(tree.UpkeepFile), err, cas.ErrCorrupt)
	}
	l.Prune.Store(was.Prune)
	l.Check.Store(was.Check)
	return nil
}

// keep writes it down.
func (l *Last) keep(p *Passes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keepLocked(p)
}

// keepLocked writes it down, and returns why that is not done, or "".
func (l *Last) keepLocked(p *Passes) (why string) {
	switch {
	case l.newer:
		return "a later version of ckptfs keeps it"
	case p.ReadOnly && !l.Beside:
		return "the store is mounted to be read only"
	case l.Beside:
		if st, err := p.Folder.Stat(); err == nil && int(st.Uid) != os.Geteuid() {
			return fmt.Sprintf("the store belongs to user %d", st.Uid)
		}
	}
	b, err := json.Marshal(lasted{lastVersion, l.Prune.Load(), l.Check.Load()})
	if err == nil {
		err = tree.WriteSynced(p.Folder, tree.UpkeepFile, append(b, '\n'))
	}
	if err == nil {
		return ""
	}
	if !l.Beside { // whose command says so itself
		p.Report(slog.LevelWarn, "when the store was pruned and checked last will not be known after a restart",
			"reason", err)
	}
	return err.Error()
}
