package objects

import (
	"errors"
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

// Source is the local store, as far as records of it are copied. It is made for one push, and until it is
// closed what it told of stays, and stays stored as it is.
type Source interface {
	// Closure lists what decoding a file reads.
	Closure(manifest cas.Hash) (*Closure, error)
	// Record is the header of a record that needs no other: of one that is part of a graph.
	Record(h cas.Hash) (segment.Record, error)
	// Payload fills p, r.Stored bytes long, with the payload of r as it is stored, checked against r.CRC. The
	// error wraps ErrChanged when another payload is stored now.
	Payload(r *segment.Record, p []byte) error
}

// ErrChanged: a record was stored otherwise since its closure was listed, which is to be listed again.
var ErrChanged = errors.New("the record is stored otherwise now")

// LostError says that the local store does not give a record, or not what the one of a manifest needs.
type LostError struct {
	Hash cas.Hash
	Err  error // of the Source
}

func (e *LostError) Error() string { return fmt.Sprintf("record %s: %v", e.Hash.Short(), e.Err) }

// Unwrap returns the error of the Source.
func (e *LostError) Unwrap() error { return e.Err }

// Closure is what decoding one file reads.
type Closure struct {
	Size int64 // bytes of the file
	// Records are different ones, in the order in which a reader of the file needs them: the manifest, lists,
	// chunks, and bases ahead of what is stored against them.
	Records []Record
	// What follows are indices into Records, in the order of record.Plan: of each different list and chunk.
	Manifest      int32
	Lists, Chunks []int32
}

// Record is a record of the local store.
type Record struct {
	segment.Record         // but for Off, which says nothing
	Number         uint8   // as in package segment: 0 if it is stored alone
	Bases          []int32 // indices into Closure.Records, less than its own
}

// Places is what is known of records in the remote.
type Places interface {
	// Find sets places[i] to where hashes[i] lies; the zero Place: not known.
	Find(hashes []cas.Hash, places []Place) error
	// Condemned sets gone[i] to whether an epoch has condemned ids[i], so that it must not be relied on.
	Condemned(ids []record.ID, gone []bool) error
}

// Place is where a record lies, and what it is there.
type Place struct {
	Object record.Object
	Placed
}

// Placed is a record of an object.
type Placed struct {
	Hash   cas.Hash
	Off    int64 // of its header, in bytes
	Raw    uint32
	Stored uint32
	CRC    uint32 // of the payload
	Kind   cas.Kind
	Based  bool // it needs bases
}
