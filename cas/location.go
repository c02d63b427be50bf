package cas

import "cmp"

// Kind says what a record in a segment is.
type Kind uint8

const (
	// Chunk is tensor or blob data.
	Chunk Kind = 1
	// List is the chunk list of one object of more than one chunk (see package ckptfs/index/manifest).
	List Kind = 2
	// Manifest describes one file.
	Manifest Kind = 3
	// Event is something that only an index would know else: a model's parents and owners, its architecture,
	// a tombstone (see package ckptfs/index/ledger).
	Event Kind = 4
	// Plan and Commit are in objects of remotes alone (see package ckptfs/cas/remote/record).
	Plan   Kind = 5
	Commit Kind = 6
)

func (k Kind) String() string {
	switch k {
	case Chunk:
		return "chunk"
	case List:
		return "list"
	case Manifest:
		return "manifest"
	case Event:
		return "event"
	case Plan:
		return "plan"
	case Commit:
		return "commit record"
	}
	return "unknown"
}

// Indexed reports whether records of that kind are in an index. Others are a newer version's: left alone
// where they are.
func (k Kind) Indexed() bool { return k == Chunk || k == List || k == Manifest || k == Event }

// Serves reports whether a record of kind k can stand for one of kind want. Lists and manifests must be found
// as such when the index is rebuilt from the segments; a chunk's bytes may come from anywhere.
func (k Kind) Serves(want Kind) bool { return k == want || want == Chunk }

// Location is where a record lies.
type Location struct {
	Segment uint32 // number of the segment file
	Off     int64  // byte offset of the record's header in the segment, a multiple of 8
	Stored  uint32 // payload bytes as stored (encoded), without the header
	Raw     uint32 // payload bytes once decoded, at most MaxChunk
	Kind    Kind
	Codec   uint8 // as in package codec
	Delta   bool  // it is decoded with the help of another record, its base
}

// RecordSize is what the record takes in its segment, header and padding included, to within a few bytes.
func (l Location) RecordSize() int64 { return (int64(l.Stored) + 80 + 7) &^ 7 }

// Compare orders locations as the records lie.
func (l Location) Compare(m Location) int {
	return cmp.Or(cmp.Compare(l.Segment, m.Segment), cmp.Compare(l.Off, m.Off))
}

// Entry is one line of the chunk index.
type Entry struct {
	Hash Hash
	Location
}

// Watermark is a place in the sequence of all segments: every record before it is in the index. Segments are
// taken in order of their numbers, records in order of their offsets; {n, 0} is "all of the segments below
// n". The zero Watermark is that of an empty index.
type Watermark struct {
	Segment uint32
	Off     int64
}

// Before reports whether w comes earlier than v.
func (w Watermark) Before(v Watermark) bool {
	if w.Segment != v.Segment {
		return w.Segment < v.Segment
	}
	return w.Off < v.Off
}
