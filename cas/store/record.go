package store

import (
	"ckptfs/cas"
)

// state of a record.
type state uint8

const (
	claimed state = iota // being looked up, encoded or written
	written              // in its segment, readable, not yet durable
	indexed              // in the index, with this or another location
	failed
)

// A record is a chunk between Put and index.
type record struct {
	hash cas.Hash
	kind cas.Kind
	done chan struct{} // closed when it is no longer claimed
	// doomed: a sweep is just taking what the index has of it. Set by claim.
	doomed bool

	// Under Store.mu; entry and tail are set once, before done is closed.
	state state
	err   error // when failed
	entry cas.Entry
	tail  *tail
}

// settle moves r on. s.mu is held.
func (s *Store) settle(r *record, st state, err error) {
	if r.state == claimed {
		defer close(r.done)
	}
	r.state, r.err = st, err
	if st != written && s.pending[r.hash] == r {
		delete(s.pending, r.hash)
	}
}

// known reports whether records of that kind are indexed. Others are a newer version's: left alone where they are.
func known(k cas.Kind) bool { return k == cas.Chunk || k == cas.List || k == cas.Manifest }

// serves reports whether a record of kind have can stand for one of kind want. Lists and manifests must be found as such
// when the index is rebuilt from the segments; a chunk's bytes may come from anywhere.
func serves(have, want cas.Kind) bool { return have == want || want == cas.Chunk }
