package store

import (
	"fmt"
	"maps"
	"sync"

	"ckptfs/cas"
)

// memIndex is a Locator in memory. What Commit took is durable: clone is the index after a crash.
type memIndex struct {
	mu      sync.Mutex
	m       map[cas.Hash]cas.Location
	mark    cas.Watermark
	commits int
	// What a crash leaves: few entries are late (chunks.Options.Late).
	onDisk   map[cas.Hash]cas.Location
	diskMark cas.Watermark
	late     int
	fail     func() error // asked before each Commit
	see      func([]cas.Entry)
	before   func(op string) // called before each operation, without a lock
}

// begin calls before as another goroutine: the one that uses the index holds locks of the store, which before
// uses too.
func (x *memIndex) begin(op string) {
	if x.before == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.before(op)
	}()
	<-done
}

func newIndex() *memIndex { return &memIndex{m: map[cas.Hash]cas.Location{}} }

func (x *memIndex) Locate(hashes []cas.Hash, locs []cas.Location) error {
	x.begin("Locate")
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, h := range hashes {
		locs[i] = x.m[h]
	}
	return nil
}

func (x *memIndex) Commit(entries []cas.Entry, mark cas.Watermark) error {
	x.begin("Commit")
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.fail != nil {
		if err := x.fail(); err != nil {
			return err
		}
	}
	if mark.Before(x.mark) {
		return fmt.Errorf("the watermark went back from %v to %v", x.mark, mark)
	}
	if x.see != nil {
		x.see(entries)
	}
	x.commits++
	for _, e := range entries {
		x.m[e.Hash] = e.Location
	}
	x.mark = mark
	if x.late += len(entries); x.late > mayBeLate {
		x.writeLocked()
	}
	return nil
}

const mayBeLate = 6 // entries

func (x *memIndex) writeLocked() { x.onDisk, x.diskMark, x.late = maps.Clone(x.m), x.mark, 0 }

func (x *memIndex) Watermark() (cas.Watermark, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mark, nil
}

func (x *memIndex) Highest() (n uint32, _ error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range x.m {
		n = max(n, l.Segment)
	}
	return n, nil
}

func (x *memIndex) Remove(entries []cas.Entry) error {
	x.begin("Remove")
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.fail != nil {
		if err := x.fail(); err != nil {
			return err
		}
	}
	x.writeLocked()
	defer x.writeLocked()
	for _, e := range entries {
		if l := x.m[e.Hash]; l.Segment == e.Segment && l.Off == e.Off {
			delete(x.m, e.Hash)
		}
	}
	return nil
}

func (x *memIndex) ForEach(from, to uint16, f func(cas.Entry) error) error {
	x.mu.Lock()
	m := maps.Clone(x.m)
	x.mu.Unlock()
	for h, l := range m {
		if p := uint16(h[0])<<8 | uint16(h[1]); from <= p && p <= to {
			if err := f(cas.Entry{Hash: h, Location: l}); err != nil {
				return err
			}
		}
	}
	return nil
}

// clone is the index as a crash leaves it.
func (x *memIndex) clone() *memIndex {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := newIndex()
	maps.Copy(c.m, x.onDisk)
	c.mark = x.diskMark
	c.writeLocked()
	return c
}
