package chunks

import (
	"bytes"
	"fmt"
	"maps"

	bolt "go.etcd.io/bbolt"

	"ckptfs/cas"
)

// Check walks the whole index: the order of keys and records, their fields, and the totals against what they sum up.
// (bolt's own check runs in a goroutine of its own and would take the program down with it on a bad page.)
func (db *DB) Check() error {
	return db.view(func(tx *bolt.Tx) error {
		sum := totals{}
		var last []byte
		err := tx.Bucket(bucketChunks).ForEach(func(key, value []byte) error {
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
				l := location(blob[i:])
				if err := checkLocation(l); err != nil {
					return fmt.Errorf("%w: %w", err, cas.ErrCorrupt)
				}
				sum.add(l, 1)
			}
			return nil
		})
		if err != nil {
			return err
		}
		kept, err := readTotals(tx.Bucket(bucketMeta))
		if err != nil {
			return err
		}
		if !maps.EqualFunc(kept, sum, func(a, b *Total) bool { return *a == *b }) {
			return fmt.Errorf("index: totals differ from the sum of the entries: %w", cas.ErrCorrupt)
		}
		return nil
	})
}
