package anchor

// Set is a few windows that are looked for at all places. The zero value has none.
type Set struct {
	keys   map[Key]bool
	filter [1 << 10]uint64 // bits, by the lowest 16 of keys
}

// Add adds the window of a key.
func (s *Set) Add(k Key) {
	if s.keys == nil {
		s.keys = map[Key]bool{}
	}
	s.keys[k] = true
	s.filter[uint16(k)>>6] |= 1 << (k & 63)
}

// Len is how many there are.
func (s *Set) Len() int { return len(s.keys) }

// In calls f with the element at which each of them begins in p, numbers of bfloat16.
func (s *Set) In(p []byte, f func(i int, k Key)) {
	for i := 0; i+2*width <= len(p); i += 2 {
		q := p[i : i+2*width : i+2*width]
		k := keyOf(le.Uint64(q), le.Uint64(q[8:]))
		if s.filter[uint16(k)>>6]&(1<<(k&63)) != 0 && s.keys[k] {
			f(i/2, k)
		}
	}
}
