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
	clear(locs[:len(hashes)])
	// What is late comes first: it goes into the file before it ceases to be late, and so is found in one of
	// the two whenever that happens.
	if db.late.locate(hashes, locs) == len(hashes) {
		return nil
	}
	return db.with(func(f *file) error { return f.locate(hashes, locs) })
}

// commit writes c: entries first, the mark and the pairs last.
func (f *file) commit(c change) error {
	of := rewriting{entries: c.entries, change: merge}
	highest := uint32(0)
	for i := range c.entries {
		highest = max(highest, c.entries[i].Segment)
	}
	of.each = func(tx *bolt.Tx) error { return raiseHighest(tx.Bucket(bucketMeta), highest) }
	of.last = func(tx *bolt.Tx) error {
		for bucket, pairs := range c.pairs {
			if err := putPairs(tx, bucket, pairs); err != nil {
				return err
			}
		}
		if !c.marked {
			return nil
		}
		return setMark(tx.Bucket(bucketMeta), c.mark)
	}
	return f.rewrite(of)
}

// raiseHighest sets the highest segment that an entry ever had, given that of some.
func raiseHighest(meta *bolt.Bucket, highest uint32) error {
	was, err := readHighest(meta)
	if err != nil {
		return err
	}
	if highest <= was && meta.Get(keyHighest) != nil {
		return nil
	}
	return meta.Put(keyHighest, seal(keyHighest, binary.BigEndian.AppendUint32(nil, max(was, highest))))
}

func setMark(meta *bolt.Bucket, mark cas.Watermark) error {
	m := binary.BigEndian.AppendUint32(nil, mark.Segment)
	return meta.Put(keyMark, seal(keyMark, binary.BigEndian.AppendUint64(m, uint64(mark.Off))))
}

// Remove takes the entries out, each only if its hash still has that very location, so that a record that was
// stored again meanwhile stays; durable when it returns, as every Commit before is. The error is the disk's
// when there is no room for entries that are late; then nothing is removed. With any other, some may be. The
// watermark stays.
func (db *DB) Remove(entries []cas.Entry) error {
	db.writing.Lock()
	defer db.writing.Unlock()
	if err := db.flushLocked(); err != nil || len(entries) == 0 {
		return err
	}
	return db.with(func(f *file) error { return f.rewrite(rewriting{entries: entries, change: without}) })
}

// rewriting makes other records of those of each prefix that entries have.
type rewriting struct {
	entries []cas.Entry
	change  func(blob []byte, entries []cas.Entry) []byte
	each    func(*bolt.Tx) error // completes each transaction; nil: nothing does
	last    func(*bolt.Tx) error // completes the last one, likewise
}

// portion is how many bytes of values a transaction rewrites: bbolt has their pages in memory until it ends.
const portion = 8 << 20

// rewrite takes several transactions for what would take much memory in one. What ends it in between leaves
// the entries of some, each of which is as right as it is with the others.
func (f *file) rewrite(of rewriting) error {
	sorted := sortEntries(of.entries)
	for {
		if err := f.update(func(tx *bolt.Tx) (err error) {
			if sorted, err = of.some(tx, sorted, f.portion); err != nil {
				return err
			}
			if of.each != nil {
				err = of.each(tx)
			}
			if err == nil && len(sorted) == 0 && of.last != nil {
				err = of.last(tx)
			}
			return err
		}); err != nil || len(sorted) == 0 {
			return err
		}
	}
}

// some rewrites as many prefixes as a transaction does, and returns the entries of the others.
func (of *rewriting) some(tx *bolt.Tx, sorted []cas.Entry, most int) ([]cas.Entry, error) {
	chunks := tx.Bucket(bucketChunks)
	chunks.FillPercent = 1
	for size := 0; len(sorted) > 0 && size < most; {
		key := sorted[0].Hash[:prefixLen]
		n := samePrefix(sorted)
		old, err := openBlob(key, chunks.Get(key))
		if err != nil {
			return nil, err
		}
		blob := of.change(old, sorted[:n])
		switch {
		case bytes.Equal(blob, old):
		case len(blob) == 0:
			err = chunks.Delete(key)
		default:
			err = chunks.Put(key, seal(key, blob))
		}
		if err != nil {
			return nil, err
		}
		size += max(len(blob), len(old))
		sorted = sorted[n:]
	}
	return sorted, nil
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
	slices.SortStableFunc(s, func(a, b cas.Entry) int {
		return bytes.Compare(a.Hash[:keyLen], b.Hash[:keyLen])
	})
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
	if mark, behind := db.late.watermark(); behind {
		return mark, nil
	}
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

// Highest is the highest segment that an entry on the disk has, or had; 0: none.
func (db *DB) Highest() (n uint32, err error) {
	err = db.view(func(tx *bolt.Tx) error {
		n, err = readHighest(tx.Bucket(bucketMeta))
		return err
	})
	return n, err
}

func readHighest(meta *bolt.Bucket) (uint32, error) {
	p := meta.Get(keyHighest)
	if p == nil {
		return 0, nil // of an index that no later version has written to
	}
	p, err := unseal(keyHighest, p)
	if err != nil {
		return 0, err
	}
	if len(p) != 4 {
		return 0, fmt.Errorf("index: highest segment of %d bytes: %w", len(p), cas.ErrCorrupt)
	}
	return binary.BigEndian.Uint32(p), nil
}

// ForEach calls f with every entry whose hash begins with a prefix in [from, to]: those on the disk
// ascending, then those that are late. Only the first 16 bytes of the entry's hash are sure to be there; the
// rest may be zero. An error of f's ends the walk and is returned. f must not call Commit.
func (db *DB) ForEach(from, to uint16, f func(e cas.Entry) error) error {
	late := db.late.within(from, to)
	err := db.view(func(tx *bolt.Tx) error {
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
				if _, ok := late[keyOf(&e.Hash)]; ok {
					continue
				}
				if err := f(e); err != nil {
					return err
				}
			}
		}
		return nil
	})
	for _, e := range late {
		if err != nil {
			break
		}
		err = f(e)
	}
	return err
}

// Size is the length of the index file in bytes.
func (db *DB) Size() (size int64, err error) {
	err = db.view(func(tx *bolt.Tx) error {
		size = tx.Size()
		return nil
	})
	return size, err
}

// Check walks the whole index: the order of keys and records, and their fields. (bolt's own check runs in a
// goroutine of its own and would take the program down with it on a bad page.)
func (db *DB) Check() error {
	return db.view(func(tx *bolt.Tx) error {
		var last []byte
		return tx.Bucket(bucketChunks).ForEach(func(key, value []byte) error {
			blob, err := openBlob(key, value)
			if err != nil {
				return err
			}
			if last != nil && bytes.Compare(last, key) >= 0 {
				return fmt.Errorf("index: prefix %x after %x: %w", key, last, cas.ErrCorrupt)
			}
			last = key
			for i := 0; i < len(blob); i += recordLen {
				if i > 0 && bytes.Compare(blob[i-recordLen:i-recordLen+tailLen], blob[i:i+tailLen]) >= 0 {
					return fmt.Errorf("index: records of prefix %x out of order: %w", key, cas.ErrCorrupt)
				}
				if err := checkLocation(location(blob[i:])); err != nil {
					return fmt.Errorf("%w: %w", err, cas.ErrCorrupt)
				}
			}
			return nil
		})
	})
}
