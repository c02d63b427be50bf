package chunks

import (
	"bytes"
	"testing"

	"ckptfs/cas"
)

// Whatever stands in a value, with a checksum that is right, is looked up, changed and refused without a
// panic, and what is put in is found.
func FuzzRecords(f *testing.F) {
	es := entries(1, 3)
	for i := range es {
		es[i].Hash[0], es[i].Hash[1] = 0, 1
	}
	f.Add(merge(nil, sortEntries(es)), es[0].Hash[:keyLen])
	f.Add([]byte{}, make([]byte, keyLen))
	f.Fuzz(func(t *testing.T, blob, hash []byte) {
		key := []byte{0, 1}
		if got, err := openBlob(key, blob); err == nil && len(got) > 0 {
			t.Fatal("a value without a checksum was taken") // 1 in 4 billion
		}
		var e cas.Entry
		copy(e.Hash[:], hash)
		copy(e.Hash[:], key)
		e.Location = cas.Location{Segment: 7, Off: 64, Stored: 3, Raw: 4, Kind: cas.Chunk}
		got, err := openBlob(key, seal(key, bytes.Clone(blob)))
		if (err == nil) != (len(blob) > 0 && len(blob)%recordLen == 0) {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		for i := 0; i < len(got); i += recordLen {
			_ = checkLocation(location(got[i:]))
		}
		find(got, e.Hash[prefixLen:keyLen])
		more := merge(got, []cas.Entry{e})
		if len(more) != len(got) && len(more) != len(got)+recordLen {
			t.Fatalf("%d bytes of %d", len(more), len(got))
		}
		sorted := true
		for i := recordLen; i < len(more); i += recordLen {
			sorted = sorted && bytes.Compare(more[i-recordLen:i-recordLen+tailLen], more[i:i+tailLen]) < 0
		}
		if r := find(more, e.Hash[prefixLen:keyLen]); sorted && (r == nil || location(r) != e.Location) {
			t.Fatal("what was put in is not found")
		}
		less := without(more, []cas.Entry{e})
		if sorted && len(less) != len(more)-recordLen {
			t.Fatal("what was put in does not go")
		}
	})
}
