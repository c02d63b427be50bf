package prefix

import "math/bits"

// dict maps keys to classes by open addressing. Keys are hashes already, so a key's place is its share of the table, and a
// table grows by a fifth in one sweep of memory.
type dict struct {
	slots []slot
	used  int
}

// slot is 12 bytes. val is class << 1 | twins, where twins says that some architecture holds the tree of this key
// more than once; none marks a free slot.
type slot struct{ hi, lo, val uint32 }

func (s *slot) class() uint32 { return s.val >> 1 }

// find is the slot of key, or nil.
func (d *dict) find(key uint64) *slot {
	if d.used == 0 {
		return nil
	}
	hi, lo := uint32(key>>32), uint32(key)
	for i := d.place(key); ; {
		s := &d.slots[i]
		if s.val == none {
			return nil
		}
		if s.hi == hi && s.lo == lo {
			return s
		}
		if i++; i == len(d.slots) {
			i = 0
		}
	}
}

func (d *dict) place(key uint64) int {
	hi, _ := bits.Mul64(key, uint64(len(d.slots)))
	return int(hi)
}

// insert adds a key that is not there.
func (d *dict) insert(key uint64, val uint32) {
	if d.used*5 >= len(d.slots)*4 {
		d.resize(max(64, len(d.slots)+len(d.slots)/5))
	}
	d.put(key, val)
	d.used++
}

func (d *dict) put(key uint64, val uint32) {
	i := d.place(key)
	for d.slots[i].val != none {
		if i++; i == len(d.slots) {
			i = 0
		}
	}
	d.slots[i] = slot{uint32(key >> 32), uint32(key), val}
}

func (d *dict) resize(n int) {
	old := d.slots
	d.slots = make([]slot, n)
	for i := range d.slots {
		d.slots[i].val = none
	}
	for i := range old {
		if s := &old[i]; s.val != none {
			d.put(uint64(s.hi)<<32|uint64(s.lo), s.val)
		}
	}
}

// keep removes the keys whose class is not kept.
func (d *dict) keep(kept func(class uint32) bool) {
	n := 0
	for i := range d.slots {
		if s := &d.slots[i]; s.val != none {
			if kept(s.class()) {
				n++
			} else {
				s.val = none
			}
		}
	}
	d.used = n
	d.resize(n + n/2 + 64)
}
