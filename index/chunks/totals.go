package chunks

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"

	"ckptfs/cas"
)

// Total sums the entries of one kind.
type Total struct {
	Count  int64 // records
	Raw    int64 // payload bytes once decoded
	Stored int64 // payload bytes as stored, without headers
}

const totalLen = 1 + 3*8

type totals map[cas.Kind]*Total

// add counts l in, or out with a sign of -1.
func (t totals) add(l cas.Location, sign int64) {
	s := t[l.Kind]
	if s == nil {
		s = &Total{}
		t[l.Kind] = s
	}
	s.Count += sign
	s.Raw += sign * int64(l.Raw)
	s.Stored += sign * int64(l.Stored)
}

func (t totals) encode() []byte {
	p := make([]byte, 0, len(t)*totalLen)
	for _, k := range slices.Sorted(maps.Keys(t)) {
		if s := t[k]; s.Count != 0 {
			p = append(p, byte(k))
			p = binary.BigEndian.AppendUint64(p, uint64(s.Count))
			p = binary.BigEndian.AppendUint64(p, uint64(s.Raw))
			p = binary.BigEndian.AppendUint64(p, uint64(s.Stored))
		}
	}
	return p
}

func readTotals(meta *bolt.Bucket) (totals, error) {
	t := totals{}
	p := meta.Get(keyTotals)
	if p == nil {
		return t, nil
	}
	p, err := unseal(keyTotals, p)
	if err != nil {
		return nil, err
	}
	if len(p)%totalLen != 0 {
		return nil, fmt.Errorf("index: totals of %d bytes: %w", len(p), cas.ErrCorrupt)
	}
	for ; len(p) > 0; p = p[totalLen:] {
		t[cas.Kind(p[0])] = &Total{
			Count:  int64(binary.BigEndian.Uint64(p[1:])),
			Raw:    int64(binary.BigEndian.Uint64(p[9:])),
			Stored: int64(binary.BigEndian.Uint64(p[17:])),
		}
	}
	return t, nil
}

// Totals sums up the index, by kind of record.
func (db *DB) Totals() (sum map[cas.Kind]Total, err error) {
	sum = map[cas.Kind]Total{}
	err = db.view(func(tx *bolt.Tx) error {
		t, err := readTotals(tx.Bucket(bucketMeta))
		for k, s := range t {
			sum[k] = *s
		}
		return err
	})
	return sum, err
}
