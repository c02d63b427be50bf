// Package damage says what a check of a store found.
package damage

import (
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// Problem says what a check found.
type Problem uint8

const (
	BadSegment  Problem = iota + 1 // header or footer damaged, or another store's; Off says nothing
	BadRecord                      // a record's header is not what was written
	BadChunk                       // a record's content is not what was written
	Unreadable                     // the disk refused to read
	BadEntry                       // the index names a place where no such record lies
	BadIndex                       // the index itself is damaged
	BadSum                         // a record's XXH3 is not that of its content, which is whole
	BadUnlisted                    // BadChunk of a record that the index names, and no footer
	// These are no damage by themselves.
	BadBase    // a delta whose base is lost or damaged: one that nothing needs may outlive its base
	NotIndexed // a record that the index does not have: left by a sweep that was cut short, or lost there
	Unsealed   // a segment without a footer that is not being written: the next start makes one
)

func (p Problem) String() string {
	switch p {
	case BadSegment:
		return "segment damaged"
	case BadRecord:
		return "record damaged"
	case BadChunk:
		return "chunk damaged"
	case Unreadable:
		return "unreadable"
	case BadEntry:
		return "index names a wrong place"
	case BadIndex:
		return "index damaged"
	case BadSum:
		return "checksum damaged"
	case BadUnlisted:
		return "chunk damaged that no footer lists"
	case BadBase:
		return "base lost"
	case NotIndexed:
		return "not in the index"
	case Unsealed:
		return "segment without footer"
	}
	return "unknown problem"
}

// Harmless reports whether the problem is none as long as nothing needs the record.
func (p Problem) Harmless() bool { return p == BadBase || p == NotIndexed || p == Unsealed }

// By is p where err tells of damage, and Unreadable where it is of a disk that does not read.
func (p Problem) By(err error) Problem {
	if segment.IsDamage(err) {
		return p
	}
	return Unreadable
}

// Repair is what mends the problem, as far as it can be: "segments" (package salvage), "index" (built again),
// or "" (nothing here, or no need).
func (p Problem) Repair() string {
	switch p {
	case BadSegment, BadRecord, BadChunk, BadSum, Unreadable:
		return "segments"
	case BadEntry, BadIndex, NotIndexed, BadUnlisted:
		return "index"
	}
	return ""
}

// ByData reports whether a check that does not read the content of records passes over what it found here.
func (f Finding) ByData() bool {
	switch f.Problem {
	case BadChunk, BadSum, BadBase, BadUnlisted:
		return true
	case Unreadable:
		return !f.Hash.IsZero()
	}
	return false
}

// Finding is one thing that a check found.
type Finding struct {
	Problem Problem
	Segment uint32   // 0: of no segment
	Off     int64    // bytes
	Hash    cas.Hash // zero: of no record; of a BadEntry the first 16 bytes are sure
	Kind    cas.Kind
	Err     error // why
}

func (f Finding) String() string {
	s := f.Problem.String()
	if f.Segment != 0 {
		s += " in " + segment.Name(f.Segment)
	}
	if !f.Hash.IsZero() {
		s += fmt.Sprintf(" at %d (%s %s)", f.Off, f.Kind, f.Hash.Short())
	}
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	return s
}
