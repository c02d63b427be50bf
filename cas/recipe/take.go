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

// Aside puts aside what a Take takes, for what comes later. The value stays what it is.
type Aside struct{ Take }

func (Aside) id() byte { return opAside }

func (r *fields) aside() (Op, error) {
	op, err := r.take()
	if err != nil {
		return nil, err
	}
	return Aside{op.(Take)}, nil
}

func (a Aside) run(m *machine) error {
	if _, ok := a.Len(); !ok {
		return corrupt("too much is put aside")
	}
	var v vector
	var err error
	v.start(&a.Take, m.bases, nil)
	m.aside, err = v.append(m.aside[:0])
	return err
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
