package usage

import (
	"cmp"
	"encoding/binary"
	"slices"

	"ckptfs/cas"
)

// table says how often each record is referred to, and by whom. It has a pair for each record and each run
// that leads to it, in ascending order, by the first 16 bits of the hash. Ten million take some 140 MB.
//
// Hashes are told apart by their first 64 bits. Of ten million records two are taken for one in one store out
// of 400,000.
type table struct {
	shards [1 << 16][]pair
	beyond map[crowded]int // references beyond mostRefs
	pairs  int
}

// pair is a record and who refers to it.
type pair struct {
	high      uint32 // bits 16 to 47 of the hash
	low, refs uint16 // bits 48 to 63
	who       uint32
}

const mostRefs = 1<<16 - 1

// crowded is a pair with mostRefs and more references.
type crowded struct {
	shard uint16
	pair
}

// Who refers to a record: a run by its number, or one of these.
const (
	noRun  = 0         // files that are in no run
	asBase = 1<<32 - 1 // records that are stored against it, and are needed themselves
)

// turn is what one reference more, or less, makes of a record.
type turn struct {
	own   bool   // it is the first, or was the last, of this one
	alone bool   // no other file refers to the record
	base  bool   // others are stored against it, whatever files do
	all   []pair // who refers to it now; as long as the table does not change
}

// add counts a reference more, or with by -1 less, of who to a record. false: there is none to take away.
func (t *table) add(h *cas.Hash, who uint32, by int) (is turn, ok bool) {
	n := binary.BigEndian.Uint16(h[:])
	s, p := t.shards[n], pairOf(h)
	p.who = who
	i, found := slices.BinarySearchFunc(s, p, pair.compare)
	switch {
	case !found && by < 0:
		return is, false
	case !found:
		p.refs = 1
		s, is.own = insert(s, i, p), true
	case by > 0 && s[i].refs == mostRefs:
		t.beyond[crowded{n, s[i]}]++
	case by > 0:
		s[i].refs++
	case s[i].refs == mostRefs && t.beyond[crowded{n, s[i]}] > 0:
		t.beyond[crowded{n, s[i]}]--
	case s[i].refs > 1:
		s[i].refs--
	default:
		s, is.own = slices.Delete(s, i, i+1), true
	}
	t.shards[n] = s
	if !is.own {
		return is, true
	}
	t.pairs += by
	is.all, is.alone = same(s, p), true
	for _, q := range is.all {
		switch q.who {
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
func (t *table) has(h *cas.Hash) bool {
	return len(same(t.shards[binary.BigEndian.Uint16(h[:])], pairOf(h))) > 0
}

// pairOf is the least pair that a record may have.
func pairOf(h *cas.Hash) pair {
	return pair{high: binary.BigEndian.Uint32(h[2:]), low: binary.BigEndian.Uint16(h[6:])}
}

func (p pair) compare(q pair) int {
	return cmp.Or(cmp.Compare(p.high, q.high), cmp.Compare(p.low, q.low), cmp.Compare(p.who, q.who))
}

// same are the pairs of one record.
func same(s []pair, of pair) []pair {
	of.who = 0
	i, _ := slices.BinarySearchFunc(s, of, pair.compare)
	n := i
	for n < len(s) && s[n].high == of.high && s[n].low == of.low {
		n++
	}
	return s[i:n]
}

// insert is slices.Insert with an eighth of room to grow: a shard is small, and there are many.
func insert(s []pair, i int, p pair) []pair {
	if len(s) == cap(s) {
		grown := make([]pair, len(s), len(s)+len(s)/8+4)
		copy(grown, s)
		s = grown
	}
	return slices.Insert(s, i, p)
}
