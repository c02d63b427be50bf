package prefix

// weights counts by key, in a table that stays in the nearest cache.
type weights struct {
	slots   []uint16 // 1 + index into entries
	entries []weighed
}

type weighed struct {
	key   uint64
	n     int
	first int // of what counts vertices
}

func (w *weights) reset(n int) {
	size := 32
	for size < 2*n {
		size *= 2
	}
	w.slots = resize(w.slots, size)
	w.entries = w.entries[:0]
}

func (w *weights) at(key uint64) int {
	mask := len(w.slots) - 1
	for i := int(key*0x9e3779b97f4a7c15>>40) & mask; ; i = (i + 1) & mask {
		if s := w.slots[i]; s == 0 || w.entries[s-1].key == key {
			return i
		}
	}
}

func (w *weights) entry(key uint64) *weighed {
	i := w.at(key)
	if w.slots[i] == 0 {
		w.entries = append(w.entries, weighed{key: key})
		w.slots[i] = uint16(len(w.entries))
	}
	return &w.entries[w.slots[i]-1]
}

// add adds n to the count of key and returns it.
func (w *weights) add(key uint64, n int) int {
	e := w.entry(key)
	e.n += n
	return e.n
}

// again counts v by its key. It returns how many came before it, and the first.
func (w *weights) again(key uint64, v int) (before, first int) {
	e := w.entry(key)
	if e.n == 0 {
		e.first = v
	}
	e.n++
	return e.n - 1, e.first
}

func (w *weights) get(key uint64) int {
	if s := w.slots[w.at(key)]; s != 0 {
		return w.entries[s-1].n
	}
	return 0
}
