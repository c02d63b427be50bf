package chunks

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"

	"ckptfs/cas"
	"ckptfs/cas/locks"
)

// lookups are the values that Locate found since the file was changed last, by prefix, so that it need not
// descend to them again. They lie in bolt's map of the file, where a transaction that stays open until the
// next change keeps them.
type lookups struct {
	mu       locks.RWMutex[lookupsLock]
	changing bool // a change is under way: what is found now may be other than it
	asked    atomic.Int64
	tx       *bolt.Tx // nil: too few were asked for
	values   *values
}

// worthKeeping is after how many lookups values are kept. Passes over a whole store ask for far more between
// two changes, packing asks for fewer, and would make a table for each of its commits.
const worthKeeping = 4096

// values are those of each prefix; nil: not looked for yet. What the disk holds may rot, and with it the map:
// they are checked whenever they are used.
type values struct {
	of      [1 << 16]atomic.Pointer[[]byte]
	seeking locks.Mutex[seekingLock] // a transaction is not for two at once
	cursor  *bolt.Cursor
}

// locate sets those of locs that are zero.
func (f *file) locate(hashes []cas.Hash, locs []cas.Location) error {
	return f.guard(func() error {
		l := &f.lookups
		if l.asked.Add(int64(len(hashes))) > worthKeeping {
			if err := l.begin(f.bolt); err != nil {
				return err
			}
			l.mu.RLock()
			defer l.mu.RUnlock()
			if l.tx != nil {
				return locate(hashes, locs, l.values.get)
			}
		}
		return f.bolt.View(func(tx *bolt.Tx) error {
			c := tx.Bucket(bucketChunks).Cursor()
			return locate(hashes, locs, func(prefix []byte) []byte { return seek(c, prefix) })
		})
	})
}

// locate sets those of locs that are zero, by the values of their prefixes.
func locate(hashes []cas.Hash, locs []cas.Location, value func(prefix []byte) []byte) error {
	for i := range hashes {
		if locs[i].Segment != 0 {
			continue
		}
		h := &hashes[i]
		blob, err := openBlob(h[:prefixLen], value(h[:prefixLen]))
		if err != nil {
			return err
		}
		if r := find(blob, h[prefixLen:keyLen]); r != nil {
			locs[i] = location(r)
		}
	}
	return nil
}

// seek is the value of a prefix; nil: it has none.
func seek(c *bolt.Cursor, prefix []byte) []byte {
	if key, value := c.Seek(prefix); bytes.Equal(key, prefix) {
		return value
	}
	return nil
}

func (v *values) get(prefix []byte) []byte {
	at := &v.of[binary.BigEndian.Uint16(prefix)]
	if found := at.Load(); found != nil {
		return *found
	}
	v.seeking.Lock()
	defer v.seeking.Unlock()
	value := seek(v.cursor, prefix)
	at.Store(&value)
	return value
}

// begin begins to keep values, unless they are kept or a change is under way.
func (l *lookups) begin(b *bolt.DB) (err error) {
	l.mu.RLock()
	kept := l.tx != nil || l.changing
	l.mu.RUnlock()
	if kept {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tx != nil || l.changing {
		return nil
	}
	if l.tx, err = b.Begin(false); err != nil {
		l.tx = nil
		return err
	}
	l.values = &values{cursor: l.tx.Bucket(bucketChunks).Cursor()}
	return nil
}

// end lets go of what is kept, for a change that done ends. A transaction that is open would keep bolt from
// closing the file, from mapping more of it, and from using room again.
func (l *lookups) end() (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changing = true
	if l.tx != nil {
		_ = l.tx.Rollback() // fails only for one that has ended
		l.tx, l.values = nil, nil
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changing = false
		l.asked.Store(0)
	}
}
