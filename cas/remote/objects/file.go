package objects

import (
	"cmp"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

// file is what a plan is made of. Places are by Packer.objects.
type file struct {
	manifest cas.Hash
	size     int64
	record   record.Record
	lists    []record.Record
	chunks   []record.Place
	bases    []record.Base
	against  []record.Against // of chunks, and then of bases
	graph    []record.Place
	parts    []cas.Hash // of the graph
	late     []late
	whole    *Whole // it is there as a whole; then nothing of the above is set but manifest and graph
}

// late is a manifest, a list, or what one is stored against: it lies right before the plans.
type late struct {
	segment.Record
	at *record.Place // in its file; set once it is laid out
}

// fill notes where what a plan has lies.
func (f *file) fill(c *Closure, placed []record.Place, needed, alone []bool) {
	at := func(i int32) record.Record { return record.Record{Place: placed[i], Raw: c.Records[i].Raw} }
	f.record = at(c.Manifest)
	needed[c.Manifest] = false
	for _, i := range c.Lists {
		f.lists = append(f.lists, at(i))
		needed[i] = false
	}
	for _, i := range c.Chunks {
		f.chunks = append(f.chunks, placed[i])
		needed[i] = false
	}
	numbers := make([]uint32, len(c.Records)) // as record.Against has them
	for k, i := range c.Chunks {
		numbers[i] = uint32(k + 1)
	}
	shown := slices.Clone(c.Chunks)
	for i := range c.Records {
		r := &c.Records[i]
		if !needed[i] {
			continue
		}
		number := r.Number
		if alone[i] {
			number = 0
		}
		f.bases = append(f.bases, record.Base{Record: at(int32(i)), Hash: [16]byte(r.Hash[:16]),
			Number: number, Kind: r.Kind})
		shown = append(shown, int32(i))
		numbers[i] = uint32(len(shown))
	}
	some := false
	for _, i := range shown {
		a := against(&c.Records[i], alone[i], numbers)
		f.against = append(f.against, a)
		some = some || len(a) > 0
	}
	if !some {
		f.against = nil
	}
}

// against is what a record is stored against, by numbers of records; those of manifest and lists are 0.
func against(r *Record, alone bool, numbers []uint32) (a record.Against) {
	for _, base := range r.Bases {
		if !alone && numbers[base] > 0 {
			a = append(a, numbers[base])
		}
	}
	return a
}

// postpone notes what is laid out beside the plans, bases first. needed are the bases, as fill leaves it.
func (f *file) postpone(c *Closure, needed, waits []bool) {
	at := map[int]*record.Place{int(c.Manifest): &f.record.Place}
	for k, i := range c.Lists {
		at[int(i)] = &f.lists[k].Place
	}
	base := 0
	for i := range c.Records {
		if needed[i] {
			at[i] = &f.bases[base].Place
			base++
		}
		if waits[i] {
			f.late = append(f.late, late{c.Records[i].Record, at[i]})
		}
	}
}

// sortBases puts a file's bases in the order of a plan.
func (p *Packer) sortBases(f *file) {
	order := make([]int, len(f.bases))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &f.bases[a].Place, &f.bases[b].Place
		return cmp.Or(compareIDs(p.objects[x.Object].ID, p.objects[y.Object].ID), cmp.Compare(x.Off, y.Off))
	})
	chunks := len(f.chunks)
	numbers := make([]uint32, 1+chunks+len(order)) // new ones of record.Against, by old
	for i := range chunks {
		numbers[1+i] = uint32(1 + i)
	}
	bases, against := make([]record.Base, len(order)), slices.Clone(f.against)
	for now, was := range order {
		bases[now] = f.bases[was]
		numbers[1+chunks+was] = uint32(1 + chunks + now)
		if against != nil {
			against[chunks+now] = f.against[chunks+was]
		}
	}
	for i := range against {
		for k := range against[i] {
			against[i][k] = numbers[against[i][k]]
		}
	}
	f.bases, f.against = bases, against
}

// used lists the objects of a plan, each once.
func (f *file) used() []uint32 {
	seen := map[uint32]bool{f.record.Object: true}
	used := []uint32{f.record.Object}
	add := func(n uint32) {
		if !seen[n] {
			seen[n] = true
			used = append(used, n)
		}
	}
	for _, r := range f.lists {
		add(r.Object)
	}
	for _, at := range f.chunks {
		add(at.Object)
	}
	for _, b := range f.bases {
		add(b.Object)
	}
	return used
}
