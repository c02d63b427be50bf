package usage

import (
	"cmp"
	"encoding/binary"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/spilled"
)

// table says how often each record is referred to, and by whom.
//
// Hashes are told apart by their first 64 bits. Of ten million records two are taken for one in one store out
// of 400,000.
type table struct {
	refs *spilled.Table
	// under is a table of which refs are what was taken away, while it stays as it is; nil: there is none.
	under *spilled.Table
	of    []spilled.Slot // who refers to the record of the last turn
}

// newTable makes an empty one, which lies in a file of a folder once it is large.
func newTable(dir *disk.Folder) table { return table{refs: spilled.New(dir)} }

// without makes a table of what is left of t, from which some is taken away. t must stay as it is meanwhile.
func (t *table) without(dir *disk.Folder) table { return table{refs: spilled.New(dir), under: t.refs} }

// at is how often who refers to a record.
func (t *table) at(key uint64, who uint32) uint32 {
	if t.under != nil {
		return t.under.At(key, who) - t.refs.At(key, who)
	}
	return t.refs.At(key, who)
}

func (t *table) set(key uint64, who, n uint32) {
	if t.under != nil {
		n = t.under.At(key, who) - n
	}
	t.refs.Set(key, who, n)
}

// whose is who refers to a record, until the next turn.
func (t *table) whose(key uint64) []spilled.Slot {
	if t.under == nil {
		t.of = t.refs.Of(t.of[:0], key)
		return t.of
	}
	t.of = t.under.Of(t.of[:0], key)
	t.of = slices.DeleteFunc(t.of, func(s spilled.Slot) bool { return s.N == t.refs.At(s.Key, s.Who) })
	return t.of
}

// err says why the table is lost.
func (t *table) err() error {
	if t.under != nil {
		return cmp.Or(t.refs.Err(), t.under.Err())
	}
	return t.refs.Err()
}

// Who refers to a record: a run by its number, or one of these.
const (
	noRun  = 0         // files that are in no run
	asBase = 1<<32 - 1 // records that are stored against it, and are needed themselves
)

// turn is what one reference more, or less, makes of a record.
type turn struct {
	own   bool           // it is the first, or was the last, of this one
	alone bool           // no other file refers to the record
	base  bool           // others are stored against it, whatever files do
	all   []spilled.Slot // who refers to it now; until the next turn
}

// add counts a reference more, or with by -1 less, of who to a record. false: there is none to take away.
func (t *table) add(h *cas.Hash, who uint32, by int) (is turn, ok bool) {
	key := keyOf(h)
	n := t.at(key, who)
	if n == 0 && by < 0 {
		return is, false
	}
	now := n + uint32(by)
	t.set(key, who, now)
	if is.own = n == 0 || now == 0; !is.own {
		return is, true
	}
	is.all, is.alone = t.whose(key), true
	for _, s := range is.all {
		switch s.Who {
		case who:
		case asBase:
			is.base = true
		default:
			is.alone = false
		}
	}
	return is, true
}

// has reports whether anything refers to a record.
func (t *table) has(h *cas.Hash) bool { return t.refs.Has(keyOf(h)) }

// keyOf is what a record is known by.
func keyOf(h *cas.Hash) uint64 { return binary.BigEndian.Uint64(h[:]) }
