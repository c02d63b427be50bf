package chunks

import (
	"bytes"

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
	err = b.view(func(in *bolt.Bucket) error {
		if v, err := unseal(key, in.Get(key)); err == nil {
			value = append([]byte{}, v...)
		}
		return nil
	})
	return value, err
}

// Write changes the table, all or nothing; it is durable when it returns. When there is no room for an index
// it does nothing.
func (b *Bucket) Write(pairs []Pair) error {
	if len(pairs) == 0 {
		return nil
	}
	b.db.writing.Lock()
	defer b.db.writing.Unlock()
	return b.db.updateLocked(func(tx *bolt.Tx) error {
		in, err := tx.CreateBucketIfNotExists(b.name)
		for _, p := range pairs {
			if err != nil {
				return err
			}
			if p.Value == nil {
				err = in.Delete(p.Key)
			} else {
				err = in.Put(p.Key, seal(p.Key, bytes.Clone(p.Value)))
			}
		}
		return err
	})
}

// Scan calls f with the pairs whose key begins with a prefix, ascending. An error of f's ends it and is
// returned. Key and value are f's during the call only. f must not call the index.
func (b *Bucket) Scan(prefix []byte, f func(key, value []byte) error) error {
	return b.view(func(in *bolt.Bucket) error {
		c := in.Cursor()
		for key, value := c.Seek(prefix); key != nil && bytes.HasPrefix(key, prefix); key, value = c.Next() {
			v, err := unseal(key, value)
			if err != nil {
				continue
			}
			if err := f(key, v); err != nil {
				return err
			}
		}
		return nil
	})
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
