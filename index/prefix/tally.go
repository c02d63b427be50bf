package prefix

// tally adds up what the archs weigh in the lists that were read, or the classes.
type tally struct {
	partial []uint16 // by arch or class
	touched []uint32 // those whose partial is not 0
	left    []uint32 // what possible returned last
}

// reset sets all to 0, and makes room for n.
func (t *tally) reset(n int) {
	for _, a := range t.touched {
		t.partial[a] = 0
	}
	if cap(t.partial) < n {
		t.partial = make([]uint16, n+n/4)
	}
	t.partial = t.partial[:cap(t.partial)]
	t.touched = t.touched[:0]
}

// addOne adds w to one.
func (t *tally) addOne(a uint32, w uint16) {
	if t.partial[a] == 0 {
		t.touched = append(t.touched, a)
	}
	t.partial[a] += w
}

// add adds w to each of the archs. It returns the one that weighs most of these, and what it weighs.
func (t *tally) add(archs []uint32, w uint16) (most int, top uint32) {
	partial, touched := t.partial, t.touched
	high, top := uint16(0), none
	for _, a := range archs {
		p := partial[a]
		if p == 0 {
			touched = append(touched, a)
		}
		p += w
		partial[a] = p
		if p > high {
			high, top = p, a
		}
	}
	t.touched = touched
	return int(high), top
}

// addToTouched adds w to those of the archs that weigh something already.
func (t *tally) addToTouched(archs []uint32, w uint16) {
	for _, a := range archs {
		if p := t.partial[a]; p != 0 {
			t.partial[a] = p + w
		}
	}
}

// possible keeps those of archs that weigh at least so much. archs may be what it returned last.
func (t *tally) possible(archs []uint32, least int) []uint32 {
	t.left = resizeTo(t.left, len(archs))
	n := 0
	for _, a := range archs {
		t.left[n] = a
		if int(t.partial[a]) >= least {
			n++
		}
	}
	return t.left[:n]
}
