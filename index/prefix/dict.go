package prefix

import "math/bits"

// dict maps keys to spots by open addressing. Keys are hashes already, so a key's place is its share of the
// table, and a table grows by a fifth in one sweep of memory.
type dict struct {
	slots []slot
	used  int
}

// slot is 16 bytes.
type slot struct {
	key   key
	class uint32 // class + 1; 0 marks a free slot
	pos   uint32
}

// find is where key is, or nowhere.
func (d *dict) find(k key) spot {
	if d.used == 0 {
		return nowhere
	}
	s := &d.slots[d.slot(k)]
	return spot{s.class - 1, s.pos} // of a free slot none
}

// slot is the place of a key, or the free one where it belongs.
func (d *dict) slot(k key) int {
	hi, _ := bits.Mul64(k, uint64(len(d.slots)))
	for i := int(hi); ; {
		if s := &d.slots[i]; s.class == 0 || s.key == k {
			return i
		}
		if i++; i == len(d.slots) {
			i = 0
		}
	}
}

// set says where a key is.
func (d *dict) set(k key, at spot) {
	if d.used*5 >= len(d.slots)*4 {
		d.resize(max(64, len(d.slots)+len(d.slots)/5))
	}
	s := &d.slots[d.slot(k)]
	if s.class == 0 {
		d.used++
	}
	*s = slot{k, at.class + 1, at.pos}
}

func (d *dict) resize(n int) {
	old := d.slots
	d.slots = make([]slot, n)
	for i := range old {
		if s := &old[i]; s.class != 0 {
			d.slots[d.slot(s.key)] = *s
		}
	}
}

// keep removes the keys whose class is not kept.
func (d *dict) keep(kept func(class uint32) bool) {
	n := 0
	for i := range d.slots {
		if s := &d.slots[i]; s.class != 0 {
			if kept(s.class - 1) {
				n++
			} else {
				s.class = 0
			}
		}
	}
	d.used = n
	d.resize(n + n/2 + 64)
}
