package recipe

import "slices"

// Take makes a vector of the elements of the bases.
type Take struct {
	Type   Type
	Groups []Group
}

// Group is stretches that are taken one behind the other, as often as it is repeated.
type Group struct {
	Repeat    int
	Stretches []Stretch
}

// Stretch is Len elements from First on, moved on by Step from one repetition to the next.
type Stretch struct{ First, Len, Step int }

// Run takes n elements from first on.
func Run(t Type, first, n int) Take {
	return Take{Type: t, Groups: []Group{{Repeat: 1, Stretches: []Stretch{{First: first, Len: n}}}}}
}

func (Take) id() byte { return opTake }

func (t Take) append(dst []byte) []byte {
	dst = putUint(append(dst, byte(t.Type)), len(t.Groups))
	for _, g := range t.Groups {
		dst = putUint(putUint(dst, g.Repeat), len(g.Stretches))
		for _, s := range g.Stretches {
			dst = putInt(putUint(putUint(dst, s.First), s.Len), s.Step)
		}
	}
	return dst
}

func (r *fields) take() (Op, error) {
	t := Take{Type: Type(r.byte())}
	if !r.bad && t.Type.Size() == 0 {
		return nil, newer("elements of type %d", t.Type)
	}
	for range r.uint(MaxGroups) {
		g := Group{Repeat: r.uint(MaxValue)}
		for range r.uint(MaxStretches) {
			g.Stretches = append(g.Stretches,
				Stretch{First: r.uint(maxField), Len: r.uint(MaxValue), Step: r.int(maxField)})
		}
		t.Groups = append(t.Groups, g)
	}
	if r.bad {
		return nil, corrupt("a take that is cut short, or too large")
	}
	return t, nil
}

// Len is how many elements t takes; ok is false when they are more bytes than a value may have.
func (t *Take) Len() (n int, ok bool) {
	most := MaxValue / t.Type.Size()
	for _, g := range t.Groups {
		once := 0
		for _, s := range g.Stretches {
			if once += s.Len; once > most {
				return 0, false
			}
		}
		if once > 0 && g.Repeat > (most-n)/once {
			return 0, false
		}
		n += once * g.Repeat
	}
	return n, true
}

func (g *Group) empty() bool {
	return !slices.ContainsFunc(g.Stretches, func(s Stretch) bool { return s.Len > 0 })
}

// one reports whether t is one stretch, which lies in the n elements that there are.
func (t *Take) one(n int) bool {
	if len(t.Groups) != 1 || t.Groups[0].Repeat != 1 || len(t.Groups[0].Stretches) != 1 {
		return false
	}
	s := t.Groups[0].Stretches[0]
	return s.First+s.Len <= n
}

// take appends what t takes of the bases, further elements and zeros to dst.
func (t *Take) take(dst, bases, more []byte) ([]byte, error) {
	w := t.Type.Size()
	bases = bases[:len(bases)/w*w]
	for _, g := range t.Groups {
		if g.empty() {
			continue // however often: that would take time, and nothing else
		}
		for k := range g.Repeat {
			for _, s := range g.Stretches {
				first := s.First + k*s.Step
				if first < 0 || first > maxField {
					return dst, corrupt("element %d is taken", first)
				}
				dst = appendPart(dst, bases, more, first*w, s.Len*w)
			}
		}
	}
	return dst, nil
}

// appendPart appends n bytes from at on of a, b and zeros, which lie one behind the other.
func appendPart(dst, a, b []byte, at, n int) []byte {
	for _, p := range [2][]byte{a, b} {
		if at < len(p) {
			m := min(n, len(p)-at)
			dst = append(dst, p[at:at+m]...)
			at, n = at+m, n-m
		}
		if n == 0 {
			return dst
		}
		at -= len(p)
	}
	for len(dst)+n > cap(dst) {
		dst = append(dst[:cap(dst)], 0)[:len(dst)]
	}
	end := len(dst) + n
	clear(dst[len(dst):end])
	return dst[:end]
}
