package chunks

import (
	"bytes"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// Bucket is a table of another package's in the file of the index: what can be derived, and goes with the
// index when that is replaced. A checksum stands behind each value; a damaged value is as good as none.
type Bucket struct {
	db   *DB
	name []byte
}

// Pair is a key and its value; nil removes the key.
type Pair struct{ Key, Value []byte }

// Bucket is the table of a name.
func (db *DB) Bucket(name string) *Bucket { return &Bucket{db, []byte(name)} }

// Get is the value of a key; nil without one.
func (b *Bucket) Get(key []byte) (value []byte, err error) {
	if value, ok := b.db.late.value(b.name, key); ok {
		return value, nil
	}
	err = b.view(func(in *bolt.Bucket) error {
		if v, err := unseal(key, in.Get(key)); err == nil {
			value = append([]byte{}, v...)
		}
		return nil
	})
	return value, err
}

// Write changes the table. The change is on the disk with a later commit, or, after an error, lost. When
// there is no room for it, it is lost without one.
func (b *Bucket) Write(pairs []Pair) error { return unlessFull(b.write(pairs, false)) }

// WriteNow changes the table, all or nothing, and what is late with it. The change is on the disk when it
// returns, or, after an error, undone; but when it was the disk's last sync that failed, it may be there all
// the same, as after a crash.
func (b *Bucket) WriteNow(pairs []Pair) error { return b.write(pairs, true) }

func (b *Bucket) write(pairs []Pair, now bool) error {
	return b.db.write(now, Change{b, pairs})
}

// Change is what changes in a table.
type Change struct {
	Of    *Bucket
	Pairs []Pair
}

// WriteNow is Bucket.WriteNow of several tables, together all or nothing.
func (db *DB) WriteNow(changes ...Change) error { return db.write(true, changes...) }

func (db *DB) write(now bool, changes ...Change) error {
	changes = slices.DeleteFunc(changes, func(c Change) bool { return len(c.Pairs) == 0 })
	if len(changes) == 0 {
		return nil
	}
	db.writing.Lock()
	defer db.writing.Unlock()
	few, undo := true, func() {}
	for _, c := range changes {
		undone, still := db.late.addPairs(c.Of.name, c.Pairs, db.few)
		before := undo
		few, undo = few && still, func() { undone(); before() }
	}
	if few && !now {
		return nil
	}
	err := db.flushLocked()
	if err != nil { // what others wrote before stays: pairs of theirs may name it
		undo()
	}
	return err
}

// putPairs changes a table within a transaction.
func putPairs(tx *bolt.Tx, bucket string, pairs map[string][]byte) error {
	in, err := tx.CreateBucketIfNotExists([]byte(bucket))
	for key, value := range pairs {
		if err != nil {
			return err
		}
		if k := []byte(key); value == nil {
			err = in.Delete(k)
		} else {
			err = in.Put(k, seal(k, append(make([]byte, 0, len(value)+sumLen), value...)))
		}
	}
	return err
}

// Scan calls f with the pairs whose key begins with a prefix, ascending. An error of f's ends it and is
// returned. Key and value are f's during the call only. f must not call the index.
func (b *Bucket) Scan(prefix []byte, f func(key, value []byte) error) error {
	late := b.db.late.pairsOf(b.name, prefix) // what goes into the file meanwhile is in both
	// upTo calls f with what is late up to a key, nil: with all of it. had: that key is late itself.
	upTo := func(key []byte) (had bool, err error) {
		for ; len(late) > 0 && !had && (key == nil || bytes.Compare(late[0].Key, key) <= 0); late = late[1:] {
			had = key != nil && bytes.Equal(late[0].Key, key)
			if late[0].Value == nil {
				continue
			}
			if err := f(late[0].Key, late[0].Value); err != nil {
				return had, err
			}
		}
		return had, nil
	}
	if err := b.view(func(in *bolt.Bucket) error {
		c := in.Cursor()
		for key, value := c.Seek(prefix); key != nil && bytes.HasPrefix(key, prefix); key, value = c.Next() {
			had, err := upTo(key)
			if err != nil {
				return err
			}
			v, err := unseal(key, value)
			if had || err != nil {
				continue
			}
			if err := f(key, v); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	_, err := upTo(nil)
	return err
}

// view calls f with the bucket, if there is one.
func (b *Bucket) view(f func(in *bolt.Bucket) error) error {
	return b.db.view(func(tx *bolt.Tx) error {
		if in := tx.Bucket(b.name); in != nil {
			return f(in)
		}
		return nil
	})
}
