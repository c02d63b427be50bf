package usage

import (
	"ckptfs/cas"
	"ckptfs/cas/locks"
	"ckptfs/cas/store"
	"ckptfs/index/chunks"
)

// changes are the inodes that are to be looked at again.
type changes struct {
	mu   locks.Mutex[changesLock]
	on   bool // something was counted
	inos map[uint64]bool
	full chan struct{} // there are enough to be worth a look in the background
}

// enough inodes are looked at in some tenth of a second.
const enough = 1024

// Changed notes that a file may have other bytes, or a folder other names.
func (u *Usage) Changed(ino uint64) {
	c := &u.changes
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.on {
		return
	}
	c.inos[ino] = true
	if len(c.inos) == enough {
		c.rouse()
	}
}

// rouse has them looked at in the background.
func (c *changes) rouse() {
	select {
	case c.full <- struct{}{}:
	default:
	}
}

// begin has changes noted from now on.
func (c *changes) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on, c.inos = true, map[uint64]bool{}
}

// take returns what was noted since it was called last.
func (c *changes) take() map[uint64]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	inos := c.inos
	c.inos = map[uint64]bool{}
	return inos
}

// Watch returns the index for a store to use. Of records that are counted it notes which are replaced or
// removed. What is new is found by the files that refer to it.
func (u *Usage) Watch(index *chunks.DB) store.Locator { return watched{index, &u.counts} }

type watched struct {
	*chunks.DB
	c *counts
}

// Commit is that of a Locator.
func (w watched) Commit(entries []cas.Entry, mark cas.Watermark) error {
	return w.c.commit(entries, w.DB.Locate, func() error { return w.DB.Commit(entries, mark) })
}

// commit has entries be in the index, and notes which of those that are counted take another place by it.
func (c *counts) commit(entries []cas.Entry, locate func([]cas.Hash, []cas.Location) error,
	commit func() error) error {
	var before []cas.Location
	if c.on.Load() {
		hashes := make([]cas.Hash, len(entries))
		for i := range entries {
			hashes[i] = entries[i].Hash
		}
		before = make([]cas.Location, len(entries))
		if err := locate(hashes, before); err != nil {
			return err
		}
	}
	err := commit()
	if err == nil && c.on.Load() { // without before a count has begun meanwhile, and may have seen the old place
		c.replaced(entries, before)
	}
	return err
}

// Remove is that of a Locator.
func (w watched) Remove(entries []cas.Entry) error {
	if w.c.on.Load() {
		w.c.replaced(entries, nil)
	}
	return w.DB.Remove(entries)
}

// replaced notes that records take another place than the ones before, or none; without before, that they go.
// One of the same size was moved. A record that is counted and had no place was lost, and is there again.
func (c *counts) replaced(entries []cas.Entry, before []cas.Location) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		moved := before != nil && before[i].Segment != 0 && before[i].Stored == e.Stored &&
			before[i].Codec == e.Codec
		if c.unread[e.Hash] || !moved && c.table.has(&e.Hash) {
			c.stale = true
		}
	}
}
