// Package live is the policy of an open store: it is read when the store is opened, and changed by commands.
// Who edits STORE/policy by hand has it read again by a command. Nothing polls the file.
//
// Rules that hold are those of the last file that could be read. A change reads the file first, so that
// nothing is lost that was written by hand, and replaces it by one that is durable before it has its name.
package live

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
	"ckptfs/fs/policy"
	"ckptfs/fs/tree"
)

// Live is the policy of a store.
type Live struct {
	folder   *disk.Folder
	readOnly bool
	now      atomic.Pointer[policy.Policy] // nil: there are no rules
	problem  atomic.Pointer[string]        // why the file could not be read; nil: it could

	// Changed is called with the rules before and those that hold now, one change after the other. It is set
	// before the first one; nil: nobody asks.
	Changed func(before, now *policy.Policy)

	mu locks.Mutex[changeLock] // held while the file is changed
}

// changeLock is Live.mu: the workers that Changed tells are under it.
type changeLock struct{}

func (changeLock) Rank() (int, string) { return locks.Volume + 10, "Live.mu" }

// Open reads the policy of a store. A file that cannot be read is a Problem, and there are no rules then.
func Open(folder *disk.Folder, readOnly bool) *Live {
	l := &Live{folder: folder, readOnly: readOnly}
	_, p, err := l.read()
	l.note(err)
	l.now.Store(p)
	return l
}

// Now are the rules that hold; nil: there are none.
func (l *Live) Now() *policy.Policy { return l.now.Load() }

// Is reports whether a rule of a kind holds for the file at a path.
func (l *Live) Is(k policy.Kind, path string) bool { return l.Now().Is(k, path) }

// Problem is why the file could not be read when that was tried last; "": it could.
func (l *Live) Problem() string {
	if p := l.problem.Load(); p != nil {
		return *p
	}
	return ""
}

func (l *Live) note(err error) {
	if err == nil {
		l.problem.Store(nil)
		return
	}
	s := err.Error()
	l.problem.Store(&s)
}

// read reads the file; no text: there is none.
func (l *Live) read() ([]byte, *policy.Policy, error) {
	f, err := l.folder.Open(tree.PolicyFile, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, policy.MaxBytes+1))
	if err != nil {
		return nil, nil, err
	}
	p, err := policy.Parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", l.folder.Join(tree.PolicyFile), err)
	}
	return text, p, nil
}

// Load reads the file again. After an error the rules hold that held before.
func (l *Live) Load() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, p, err := l.read()
	l.note(err)
	if err == nil {
		l.set(p)
	}
	return err
}

// Add adds rules behind all others, each in place of one of the same pattern and kind.
func (l *Live) Add(rules ...*policy.Rule) error {
	return l.change(func(text []byte) ([]byte, error) { return policy.Add(text, rules...) })
}

// Remove removes the rules of some patterns and a kind, of every kind if that is "", and says how many.
func (l *Live) Remove(kind policy.Kind, patterns ...string) (removed int, err error) {
	err = l.change(func(text []byte) (left []byte, err error) {
		left, removed, err = policy.Remove(text, kind, patterns...)
		return left, err
	})
	return removed, err
}

func (l *Live) change(edit func([]byte) ([]byte, error)) error {
	if l.readOnly {
		return &fs.PathError{Op: "change", Path: l.folder.Join(tree.PolicyFile), Err: unix.EROFS}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	text, _, err := l.read()
	l.note(err)
	if err != nil {
		return fmt.Errorf("the policy is not changed: %w; mend the file first", err)
	}
	now, err := edit(text)
	if err != nil {
		return err
	}
	p, err := policy.Parse(now)
	if err != nil {
		return err
	}
	if string(now) != string(text) {
		if err := tree.WriteSynced(l.folder, tree.PolicyFile, now); err != nil {
			return err
		}
	}
	l.set(p)
	return nil
}

// set makes the rules hold. mu is held.
func (l *Live) set(p *policy.Policy) {
	before := l.now.Swap(p)
	if l.Changed != nil {
		l.Changed(before, p)
	}
}
