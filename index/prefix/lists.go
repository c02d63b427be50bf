package prefix

// list is a posting list, and the keys of g in its class.
type list struct {
	class  uint32
	n      uint32 // architectures in it
	weight int
}

// readLists reads the posting lists, shortest first, adding up weights.
func (f *finder) readLists() {
	lists, rest, t := f.asked.lists, f.asked.rest, &f.tally
	t.reset(len(f.x.archs))
	i := 0
	for ; i < len(lists) && rest[i] >= f.best.length; i++ {
		if f.x.champion(lists[i].class) == none {
			continue
		}
		if f.sound(i) || rest[i] < f.best.length {
			break
		}
		f.read(i)
	}
	// No other arch can win now. Reading on narrows those that can; weighing one costs as much as reading
	// weighing entries.
	left := t.possible(t.touched, f.best.length-rest[i])
	for ; i < len(lists) && len(left)*weighing > f.x.classes[lists[i].class].post.n; i++ {
		f.members = f.x.classes[lists[i].class].post.all(f.members[:0])
		t.addToTouched(f.members, uint16(lists[i].weight))
		left = t.possible(left, f.best.length-rest[i+1])
	}
	for _, a := range left {
		if most := int(t.partial[a]) + rest[i]; most >= f.best.length {
			f.weigh(a, most, rest[i] == 0)
		}
	}
}

const weighing = 40

// read adds list i to the partial weights, and considers the arch that then weighs most.
func (f *finder) read(i int) {
	l := f.asked.lists[i]
	f.members = f.x.classes[l.class].post.all(f.members[:0])
	most, top := f.tally.add(f.members, uint16(l.weight))
	if most+f.asked.rest[i+1] > f.best.length {
		f.consider(top)
	}
}
