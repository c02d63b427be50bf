package prefix

// list is a posting list, and the keys of g in its class.
type list struct {
	class  uint32
	weight int
}

// readLists reads the posting lists, shortest first, adding up weights.
func (f *finder) readLists() {
	if n := len(f.x.archs); cap(f.partial) < n {
		f.partial = make([]uint16, n+n/4)
	}
	f.partial = f.partial[:cap(f.partial)]
	f.touched = f.touched[:0]
	i := 0
	for ; i < len(f.lists) && f.rest[i] >= f.best.length; i++ {
		if f.x.champion(f.lists[i].class) == none {
			continue
		}
		if f.sound(i) || f.rest[i] < f.best.length {
			break
		}
		f.read(i)
	}
	// No other arch can win now. Reading on narrows those that can; weighing one costs as much as reading
	// weighing entries.
	left := f.possible(f.touched, f.rest[i])
	for ; i < len(f.lists) && len(left)*weighing > f.x.classes[f.lists[i].class].post.n; i++ {
		w := uint16(f.lists[i].weight)
		f.members = f.x.classes[f.lists[i].class].post.all(f.members[:0])
		for _, a := range f.members {
			if p := f.partial[a]; p != 0 {
				f.partial[a] = p + w
			}
		}
		left = f.possible(left, f.rest[i+1])
	}
	for _, a := range left {
		if n := int(f.partial[a]); n+f.rest[i] >= f.best.length {
			f.weigh(a, n, f.rest[i] == 0)
		}
	}
	for _, a := range f.touched {
		f.partial[a] = 0
	}
}

const weighing = 40

// possible keeps of archs those that weigh as much as the best, or could with what is not read. It writes to
// f.left.
func (f *finder) possible(archs []uint32, rest int) []uint32 {
	f.left = resizeTo(f.left, len(archs))
	n := 0
	for _, a := range archs {
		f.left[n] = a
		if int(f.partial[a])+rest >= f.best.length {
			n++
		}
	}
	return f.left[:n]
}

// read adds list i to the partial weights, and considers the arch that then weighs most.
func (f *finder) read(i int) {
	w := uint16(f.lists[i].weight)
	most, top := uint16(0), none
	f.members = f.x.classes[f.lists[i].class].post.all(f.members[:0])
	for _, a := range f.members {
		p := f.partial[a]
		if p == 0 {
			f.touched = append(f.touched, a)
		}
		p += w
		f.partial[a] = p
		if p > most {
			most, top = p, a
		}
	}
	if int(most)+f.rest[i+1] > f.best.length {
		f.consider(top)
	}
}
