package objects

import (
	"testing"

	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

// An object takes what it can hold with its footer, and no more records than a segment.
func TestTakes(t *testing.T) {
	const stored = 1000
	o := &Object{end: record.MaxObject - segment.FooterSize(1) - segment.Size(stored)}
	if !o.takes(stored) {
		t.Error("not full, and takes nothing")
	}
	if o.end += 8; o.takes(stored) {
		t.Error("longer than any object")
	}
	o = &Object{records: make([]segment.Record, segment.MaxRecords-1), end: segment.FileHeaderSize}
	if !o.takes(1) {
		t.Error("it has room for a record")
	}
	if o.records = append(o.records, segment.Record{}); o.takes(1) {
		t.Error("too many records")
	}
}
