package queue

import (
	"errors"
	"fmt"

	"ckptfs/fs/content"
)

// maxPlain bounds the plain files that are synced one by one; when there are more the filesystem is synced.
const maxPlain = 64

// unsynced is what is not known to be durable. It is guarded by Queue.mu.
type unsynced struct {
	records bool                   // some that name manifests
	plain   map[*content.File]bool // files that stay plain, at most maxPlain, pinned
	tree    bool                   // the filesystem: too many plain files, or a sync failed; plain is empty
}

func (u *unsynced) any() bool { return u.records || u.tree || len(u.plain) > 0 }

// setTree has the whole filesystem synced.
func (u *unsynced) setTree() {
	u.tree = true
	u.forgetPlain()
}

// forgetPlain unpins the plain files.
func (u *unsynced) forgetPlain() {
	for f := range u.plain {
		delete(u.plain, f)
		f.Unpin()
	}
}

// NotePacked has MakeDurable sync the record of a file that was packed.
func (q *Queue) NotePacked() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unsynced.records = true
}

// NotePlain has MakeDurable sync a file that stays plain.
func (q *Queue) NotePlain(f *content.File) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := &q.unsynced
	switch {
	case q.stopping || f.Dead() || u.tree || u.plain[f]:
	case len(u.plain) == maxPlain:
		u.setTree()
	default:
		f.Pin()
		u.plain[f] = true
	}
}

// MakeDurable makes durable what was packed or found to stay plain since the last time. syncTree syncs the
// whole filesystem, syncNames the names and records in the tree; at most one of them is called. A
// call waits for the one that is under way, which may have taken what this one is to make durable. No other
// caller waits for this: a record that a power cut takes back costs nothing but packing the file again. No
// error is made of the files that the disk did not take: those are Losses.
func (q *Queue) MakeDurable(syncTree, syncNames func() error) error {
	q.syncing.Lock()
	defer q.syncing.Unlock()
	q.mu.Lock()
	u := q.unsynced
	q.unsynced = unsynced{plain: map[*content.File]bool{}}
	q.mu.Unlock()
	q.settleLost()
	errs := q.syncDelayed()
	for f := range u.plain {
		errs = append(errs, q.syncPlain(f))
		f.Unpin()
	}
	switch {
	case u.tree:
		errs = append(errs, syncTree())
	case u.any():
		errs = append(errs, syncNames())
	}
	err := joinAlike(errs)
	if err != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.unsynced.setTree()
	}
	return err
}

// joinAlike joins errors. Of those that say the same there is one, with their number.
func joinAlike(errs []error) error {
	var each []error
	times := map[string]int{}
	for _, err := range errs {
		if err == nil {
			continue
		}
		if times[err.Error()]++; times[err.Error()] == 1 {
			each = append(each, err)
		}
	}
	for i, err := range each {
		if n := times[err.Error()]; n > 1 {
			each[i] = fmt.Errorf("%d files: %w", n, err)
		}
	}
	return errors.Join(each...)
}
