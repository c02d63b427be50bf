// Package trust decides what the content of a record is held against when it is read: its XXH3, or its hash.
//
// A record has both (package segment). The hash is BLAKE3 and names the content; it takes a third of a
// second a gigabyte. The XXH3 takes a tenth of that, or less, and finds what a disk, a memory or a decoder
// does to bytes by mistake. It does not find what somebody wrote who wanted it not to.
//
//	XXH3   chunks, on reads
//	hash   what is no chunk and so names others; one read of a chunk in 64; every read while there is no trust
//
// There is no trust in a store that was not read as a whole where it lies now, and none from the moment at
// which a record was found whose XXH3 is right and whose hash is not. It comes with a check that reads every
// record. Whatever writes a record from another (a sweep, a compaction, a salvage, a delta against its base)
// does not ask this package, and compares hashes.
package trust

import (
	"errors"
	"sync/atomic"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
)

// ErrChanged: memory is not what it was.
var ErrChanged = errors.New("a chunk changed in memory between its hash and its record: nothing was stored")

// Encoded is nil if a record that is about to be written has the content of which x was taken beside its
// hash. raw was encoded as payload, by the codec id. What codec.Encode encodes it has decoded and compared
// with raw; what it does not encode is a copy of raw, and the copy is looked at.
func Encoded(id byte, raw, payload []byte, x cas.XXH3) error {
	if id == codec.Raw {
		raw = payload
	}
	if cas.SumXXH3(raw) != x {
		return ErrChanged
	}
	return nil
}

// spot is one over the share of reads that are held against the hash though there is trust.
const spot = 64

// Trust is that in one store; the zero value has it. It may be used by several goroutines at once.
type Trust struct {
	none    atomic.Bool
	reads   atomic.Uint64 // of chunks, while there was trust
	vouched func()
}

// Init says whether there is trust. vouched is called by Vouch; it may be nil.
func (t *Trust) Init(is bool, vouched func()) {
	t.none.Store(!is)
	t.vouched = vouched
}

// Vouch says that everything was found to be what its hash names.
func (t *Trust) Vouch() {
	t.none.Store(false)
	if t.vouched != nil {
		t.vouched()
	}
}

// Is reports whether there is trust.
func (t *Trust) Is() bool { return !t.none.Load() }

// Check holds content, which was decoded from rec, the record of h, against one of the two. The error wraps
// cas.ErrCorrupt.
func (t *Trust) Check(rec *segment.Record, content []byte, h cas.Hash) error {
	if rec.Kind == cas.Chunk && t.Is() && !t.spot() {
		return cas.CheckXXH3(content, rec.XXH3)
	}
	err := cas.Check(content, h)
	if err != nil && cas.CheckXXH3(content, rec.XXH3) == nil {
		t.none.Store(true)
	}
	return err
}

// spot reports whether the next read is one in 64. It is another one in each 64, so that a file of 64 chunks
// that is read again and again is looked at everywhere.
func (t *Trust) spot() bool {
	n := t.reads.Add(1) - 1
	return n%spot == n/spot%spot
}
