package chunks

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"ckptfs/cas"
)

// Locate sets locs[i] to where the record of hashes[i] lies, or to the zero Location when it is not held.
func (db *DB) Locate(hashes []cas.Hash, locs []cas.Location) error {
	return db.view(func(tx *bolt.Tx) error {
		c := tx.Bucket(bucketChunks).Cursor()
		for i := range hashes {
			h := &hashes[i]
			locs[i] = cas.Location{}
			key, value := c.Seek(h[:prefixLen])
			if !bytes.Equal(key, h[:prefixLen]) {
				continue
			}
			blob, err := openBlob(key, value)
			if err != nil {
				return err
			}
			if r := find(blob, h[prefixLen:keyLen]); r != nil {
				locs[i] = location(r)
			}
		}
		return nil
	})
}

// Commit adds the entries and sets the watermark, all or nothing; it is durable when it returns. An entry whose hash is
// held replaces the location. Of several entries with one hash the last counts.
func (db *DB) Commit(entries []cas.Entry, mark cas.Watermark) error {
	for i := range entries {
		if err := checkLocation(entries[i].Location); err != nil {
			return err
		}
	}
	sorted := sortEntries(entries)
	return db.update(func(tx *bolt.Tx) error {
		meta, chunks := tx.Bucket(bucketMeta), tx.Bucket(bucketChunks)
		chunks.FillPercent = 1
		t, err := readTotals(meta)
		if err != nil {
			return err
		}
		for len(sorted) > 0 {
			key := sorted[0].Hash[:prefixLen]
			n := samePrefix(sorted)
			old, err := openBlob(key, chunks.Get(key))
			if err != nil {
				return err
			}
			if err := chunks.Put(key, seal(key, merge(old, sorted[:n], t))); err != nil {
				return err
			}
			sorted = sorted[n:]
		}
		if err := meta.Put(keyTotals, seal(keyTotals, t.encode())); err != nil {
			return err
		}
		m := binary.BigEndian.AppendUint32(nil, mark.Segment)
		return meta.Put(keyMark, seal(keyMark, binary.BigEndian.AppendUint64(m, uint64(mark.Off))))
	})
}

// Remove takes the entries out, each only if its hash still has that very location, so that a record that was stored
// afresh meanwhile stays; all or nothing, and durable when it returns. The watermark stays.
func (db *DB) Remove(entries []cas.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	sorted := sortEntries(entries)
	return db.update(func(tx *bolt.Tx) error {
		meta, chunks := tx.Bucket(bucketMeta), tx.Bucket(bucketChunks)
		chunks.FillPercent = 1
		t, err := readTotals(meta)
		if err != nil {
			return err
		}
		for len(sorted) > 0 {
			key := sorted[0].Hash[:prefixLen]
			n := samePrefix(sorted)
			old, err := openBlob(key, chunks.Get(key))
			if err != nil {
				return err
			}
			switch left := without(old, sorted[:n], t); {
			case len(left) == len(old):
			case len(left) == 0:
				err = chunks.Delete(key)
			default:
				err = chunks.Put(key, seal(key, left))
			}
			if err != nil {
				return err
			}
			sorted = sorted[n:]
		}
		return meta.Put(keyTotals, seal(keyTotals, t.encode()))
	})
}

// samePrefix is how many entries, from the first on, have its prefix.
func samePrefix(sorted []cas.Entry) int {
	n := 1
	for n < len(sorted) && bytes.Equal(sorted[n].Hash[:prefixLen], sorted[0].Hash[:prefixLen]) {
		n++
	}
	return n
}

// sortEntries copies entries into ascending order, keeping the last of each hash.
func sortEntries(entries []cas.Entry) []cas.Entry {
	s := slices.Clone(entries)
	slices.SortStableFunc(s, func(a, b cas.Entry) int { return bytes.Compare(a.Hash[:keyLen], b.Hash[:keyLen]) })
	n := 0
	for i := range s {
		if n > 0 && bytes.Equal(s[n-1].Hash[:keyLen], s[i].Hash[:keyLen]) {
			n--
		}
		s[n] = s[i]
		n++
	}
	return s[:n]
}

// Watermark is what the last Commit set; zero at first.
func (db *DB) Watermark() (mark cas.Watermark, err error) {
	err = db.view(func(tx *bolt.Tx) error {
		mark, err = readMark(tx.Bucket(bucketMeta))
		return err
	})
	return mark, err
}

func readMark(meta *bolt.Bucket) (cas.Watermark, error) {
	p := meta.Get(keyMark)
	if p == nil {
		return cas.Watermark{}, nil
	}
	p, err := unseal(keyMark, p)
	if err != nil {
		return cas.Watermark{}, err
	}
	if len(p) != 12 {
		return cas.Watermark{}, fmt.Errorf("index: watermark of %d bytes: %w", len(p), cas.ErrCorrupt)
	}
	return cas.Watermark{Segment: binary.BigEndian.Uint32(p), Off: int64(binary.BigEndian.Uint64(p[4:]))}, nil
}

// ForEach calls f with every entry whose hash begins with a prefix in [from, to], ascending. Only the first 16 bytes of
// the entry's hash are held; the rest is zero. An error of f's ends the walk and is returned. f must not call Commit.
func (db *DB) ForEach(from, to uint16, f func(e cas.Entry) error) error {
	return db.view(func(tx *bolt.Tx) error {
		c := tx.Bucket(bucketChunks).Cursor()
		first, last := binary.BigEndian.AppendUint16(nil, from), binary.BigEndian.AppendUint16(nil, to)
		for key, value := c.Seek(first); key != nil && bytes.Compare(key, last) <= 0; key, value = c.Next() {
			blob, err := openBlob(key, value)
			if err != nil {
				return err
			}
			for ; len(blob) > 0; blob = blob[recordLen:] {
				e := cas.Entry{Location: location(blob)}
				copy(e.Hash[:], key)
				copy(e.Hash[prefixLen:], blob[:tailLen])
				if err := f(e); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// GetMeta is the value SetMeta last stored under key, or nil.
func (db *DB) GetMeta(key string) (value []byte, err error) {
	err = db.view(func(tx *bolt.Tx) error {
		value = bytes.Clone(tx.Bucket(bucketState).Get([]byte(key)))
		return nil
	})
	return value, err
}

// SetMeta stores a small value, durably; nil removes the key. What is stored goes with the index when that is rebuilt, so
// it must be derivable too.
func (db *DB) SetMeta(key string, value []byte) error {
	return db.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketState)
		if value == nil {
			return b.Delete([]byte(key))
		}
		return b.Put([]byte(key), value)
	})
}

// Size is the length of the index file in bytes.
func (db *DB) Size() (size int64, err error) {
	err = db.view(func(tx *bolt.Tx) error {
		size = tx.Size()
		return nil
	})
	return size, err
}
