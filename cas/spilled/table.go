// Package spilled has tables that need not stay in memory. A large one lies in a mapped file that has no
// name: its pages are the kernel's cache, which writes them out where memory is short. It is gone with the
// process.
//
//	Table  numbers, by the beginnings of hashes and by whom they are of
//	Set    the beginnings of hashes
//	Least  the least number that was noted for each beginning of a hash
//	Slab   values
//	Text   strings
//
// A table is sorted by keys, with gaps: each key has a home in proportion to its value, and lies there, or
// behind it with no gap between (linear probing, in order). So keys are to be spread evenly, as the
// beginnings of hashes are, and all slots of one key lie side by side.
package spilled

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"

	"ckptfs/cas/disk"
)

// Slot is how often, or when, someone was noted for a key.
type Slot struct {
	Key    uint64
	Who, N uint32 // N 0: the slot is free
}

const slotBytes = 16

// Table has one number for each key and each who. It is not safe for concurrent use.
type Table struct {
	dir   *disk.Folder
	slots []Slot // as many as there are homes, and some behind for those that were pushed out
	homes int
	used  int
	file  *mapping // that slots lie in; nil: they are in memory
	err   error
}

// New makes an empty table, whose file would be made in dir. nil: it stays in memory, as it does where no
// file can be made.
func New(dir *disk.Folder) *Table { return &Table{dir: dir} }

// firstHomes and firstTail are how large a table begins.
const firstHomes, firstTail = 64, 16

// Len is how many numbers it has.
func (t *Table) Len() int { return t.used }

// Memory is how many bytes it takes in memory; Mapped, how many in its file.
func (t *Table) Memory() int64 {
	if t.file != nil {
		return 0
	}
	return slotBytes * int64(len(t.slots))
}

// Mapped is how many bytes its file takes.
func (t *Table) Mapped() int64 { return slotBytes*int64(len(t.slots)) - t.Memory() }

// Err says why it lost what it had: the disk does not give its file back. From then on it is empty.
func (t *Table) Err() error { return t.err }

// At is the number of who for a key; 0: none.
func (t *Table) At(key uint64, who uint32) (n uint32) {
	t.guard(func() {
		if i, found := t.search(key, who); found {
			n = t.slots[i].N
		}
	})
	return n
}

// Has reports whether there is a number for a key.
func (t *Table) Has(key uint64) (has bool) {
	t.guard(func() {
		i, _ := t.search(key, 0)
		has = i < len(t.slots) && t.slots[i].N > 0 && t.slots[i].Key == key
	})
	return has
}

// Of appends the slots of a key, in the order of who.
func (t *Table) Of(all []Slot, key uint64) []Slot {
	t.guard(func() {
		i, _ := t.search(key, 0)
		for ; i < len(t.slots) && t.slots[i].N > 0 && t.slots[i].Key == key; i++ {
			all = append(all, t.slots[i])
		}
	})
	return all
}

// Each calls f with every slot, in the order of keys. It must not change the table.
func (t *Table) Each(f func(Slot)) {
	t.guard(func() {
		for _, s := range t.slots {
			if s.N > 0 {
				f(s)
			}
		}
	})
}

// Set sets the number of who for a key; 0 takes it away.
func (t *Table) Set(key uint64, who, n uint32) {
	t.guard(func() {
		i, found := t.search(key, who)
		switch {
		case n == 0 && found:
			t.remove(i)
		case n == 0:
		case found:
			t.slots[i].N = n
		default:
			t.insert(Slot{key, who, n})
		}
	})
}

// guard does what reads or writes the slots, unless they are lost.
func (t *Table) guard(do func()) {
	if t.err != nil {
		return
	}
	t.err = Guard(func() error { do(); return nil })
	if t.err != nil {
		t.slots, t.homes, t.used = nil, 0, 0
	}
}

func (t *Table) home(key uint64) int {
	hi, _ := bits.Mul64(key, uint64(t.homes))
	return int(hi)
}

// compare orders slots.
func (s *Slot) compare(key uint64, who uint32) int {
	return cmp.Or(cmp.Compare(s.Key, key), cmp.Compare(s.Who, who))
}

// search is where the number of who for a key is, or is to be. From its home on all slots come before it, up
// to that place; none does from there on.
func (t *Table) search(key uint64, who uint32) (i int, found bool) {
	from := t.home(key)
	behind := func(i int) bool { return t.slots[i].N == 0 || t.slots[i].compare(key, who) >= 0 }
	to, step := from, 1
	for to < len(t.slots) && !behind(to) {
		from, to, step = to+1, to+step, 2*step
	}
	to = min(to, len(t.slots))
	i = from + sort.Search(to-from, func(n int) bool { return behind(from + n) })
	return i, i < len(t.slots) && t.slots[i].N > 0 && t.slots[i].compare(key, who) == 0
}

// insert adds a slot that is not there.
func (t *Table) insert(s Slot) {
	if 4*(t.used+1) > 3*t.homes {
		t.rebuild(max(firstHomes, t.homes+t.homes/2), max(firstTail, len(t.slots)-t.homes))
	}
	for {
		i, _ := t.search(s.Key, s.Who)
		gap := slices.IndexFunc(t.slots[i:], func(s Slot) bool { return s.N == 0 })
		if gap < 0 {
			t.rebuild(t.homes, 2*(len(t.slots)-t.homes))
			continue
		}
		copy(t.slots[i+1:i+gap+1], t.slots[i:i+gap])
		t.slots[i] = s
		t.used++
		return
	}
}

// remove takes slot i away. What was pushed behind its home by it moves back.
func (t *Table) remove(i int) {
	end := i + 1
	for end < len(t.slots) && t.slots[end].N > 0 && t.home(t.slots[end].Key) < end {
		end++
	}
	copy(t.slots[i:end-1], t.slots[i+1:end])
	t.slots[end-1] = Slot{}
	t.used--
}

// rebuild gives the table so many homes, and as much room behind them or more.
func (t *Table) rebuild(homes, tail int) {
	before, file := t.slots, t.file
	t.homes = homes
	for ; ; tail *= 2 {
		t.slots, t.file = allocate(t.dir, homes+tail)
		if t.fill(before) {
			break
		}
		t.file.close()
	}
	file.close()
}

// fill puts slots, in their order, where they are to be now. false: there is no room for the last.
func (t *Table) fill(slots []Slot) bool {
	next := 0
	for _, s := range slots {
		if s.N == 0 {
			continue
		}
		at := max(next, t.home(s.Key))
		if at == len(t.slots) {
			return false
		}
		t.slots[at], next = s, at+1
	}
	return true
}
