package estimate

import (
	"cmp"
	"maps"
	"slices"

	"ckptfs/cas/dry"
)

// Answer is what files would take. Bytes of parts are rounded.
type Answer struct {
	Complete bool  `json:"complete"` // everything was read
	Files    int   `json:"files"`    // each inode once
	Bytes    int64 `json:"bytes"`    // what they have: of files with holes, what they hold
	// Stored is what they would take, most likely between Low and High (19 times of 20).
	StoredBytes int64   `json:"stored_bytes"`
	LowBytes    int64   `json:"low_bytes"`
	HighBytes   int64   `json:"high_bytes"`
	ReadBytes   int64   `json:"read_bytes"`
	Seconds     float64 `json:"seconds"`

	Kinds   []Part `json:"kinds"`
	Formats []Part `json:"formats"`
	// Groups are files of which one is stored with the help of another, the largest groups first.
	Groups []Group `json:"groups"`
	// Left could not be read and do not count; LeftFiles is how many they are, the first of which are named.
	Left      []Left `json:"left"`
	LeftFiles int    `json:"left_files"`
	// Changed files went, or became shorter, while they were read. They do not count either.
	Changed int `json:"changed_files"`
	Links   int `json:"links_to_folders"` // which are not followed
	Outside int `json:"links_outside"`    // to files outside of the paths, which do not count
}

// Part is some of the bytes.
type Part struct {
	Name        string `json:"name"`
	Files       int    `json:"files,omitempty"`
	Bytes       int64  `json:"bytes"`
	StoredBytes int64  `json:"stored_bytes"`
}

// Left is a file, or a folder, that could not be read.
type Left struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// kinds are what Answer.Kinds calls them, in order. Zeros are pads.
var kinds = []struct {
	name string
	of   []dry.Kind
}{
	{"equal", []dry.Kind{dry.Equal}},
	{"delta", []dry.Kind{dry.Delta}},
	{"low rank", []dry.Kind{dry.LowRank, dry.Columns}},
	{"rounding", []dry.Kind{dry.Rounded}},
	{"recipe", []dry.Kind{dry.Recipe}},
	{"alone", []dry.Kind{dry.Alone}},
	{"lists and manifests", []dry.Kind{dry.Names}},
}

// taken is what a file takes, by kinds.
type taken [dry.Kinds]struct{ raw, stored float64 }

func (t *taken) stored() (sum float64) {
	for _, c := range t {
		sum += c.stored
	}
	return sum
}

// scale is a file's sample in proportion. rank is how much of its tensors the sample has: columns are there
// once for all of a tensor, and a slice would count them again.
func scale(tally *[dry.Kinds]dry.Count, sampled, size int64, rank float64) (t taken) {
	by := float64(size) / float64(sampled)
	for k, c := range tally {
		own := by
		if dry.Kind(k) == dry.Columns {
			own *= rank
		}
		t[k].raw, t[k].stored = own*float64(c.Raw), own*float64(c.Stored)
	}
	return t
}

// pooled is what files of one format have taken.
type pooled struct {
	tally   [dry.Kinds]dry.Count
	sampled int64
	rank    [2]int64
}

func (p *pooled) add(f *file) {
	p.sampled += f.sampled
	for k, c := range f.tally {
		p.tally[k].Raw += c.Raw
		p.tally[k].Stored += c.Stored
	}
	p.rank[0] += f.rank[0]
	p.rank[1] += f.rank[1]
}

func share(rank [2]int64) float64 {
	if rank[1] == 0 {
		return 1
	}
	return float64(rank[0]) / float64(rank[1])
}

// of is what a file would take that has no sample of its own.
func (p *pooled) of(size int64) (t taken) {
	if p == nil || p.sampled == 0 {
		t[dry.Alone].raw, t[dry.Alone].stored = float64(size), float64(size)
		return t
	}
	return scale(&p.tally, p.sampled, size, share(p.rank))
}

// takes returns what tells of each file what it takes; a plain one takes itself.
func (e *estimator) takes() func(f *file) taken {
	byFormat, all := map[string]*pooled{}, &pooled{}
	for _, f := range e.files {
		if f.sampled == 0 || f.out {
			continue
		}
		if byFormat[f.format] == nil {
			byFormat[f.format] = &pooled{}
		}
		byFormat[f.format].add(f)
		all.add(f)
	}
	return func(f *file) (t taken) {
		size := max(0, f.size-f.pads)
		switch {
		case f.out:
		case f.plain, f.format == "" && f.size < smallBlob: // not looked at yet, most likely plain
			t[dry.Alone].raw, t[dry.Alone].stored = float64(f.size), float64(f.size)
		case f.sampled > 0:
			t = scale(&f.tally, f.sampled, size, share(f.rank))
		case byFormat[f.format] != nil:
			t = byFormat[f.format].of(size)
		default:
			t = all.of(size)
		}
		return t
	}
}

// answer is the answer by what was read.
func (e *estimator) answer() *Answer {
	a := &Answer{Complete: e.complete, ReadBytes: e.read, Seconds: e.o.Now().Sub(e.began).Seconds(),
		Kinds: []Part{}, Formats: []Part{}, Groups: []Group{}, Left: append([]Left{}, e.left.named...),
		LeftFiles: e.left.files, Changed: e.changed, Links: e.links,
		Outside: e.outside}
	takes := e.takes()
	var sum taken
	formats := map[string]*Part{}
	stored := 0.0
	for _, f := range e.files {
		if f.out {
			continue
		}
		a.Files++
		a.Bytes += f.size
		t := takes(f)
		own := t.stored()
		stored += own
		for k, c := range t {
			sum[k].raw += c.raw
			sum[k].stored += c.stored
		}
		name := cmp.Or(f.format, "not looked at yet")
		if formats[name] == nil {
			formats[name] = &Part{Name: name}
		}
		p := formats[name]
		p.Files++
		p.Bytes += f.size
		p.StoredBytes += int64(own)
	}
	a.StoredBytes = int64(stored)
	off := e.off(a.Bytes)
	a.LowBytes = max(0, a.StoredBytes-off-e.unseen(a.Bytes))
	a.HighBytes = max(a.StoredBytes, min(a.Bytes, a.StoredBytes+off))
	for _, k := range kinds {
		p := Part{Name: k.name}
		for _, of := range k.of {
			if of != dry.Names && of != dry.Columns { // these are not in the files
				p.Bytes += int64(sum[of].raw)
			}
			p.StoredBytes += int64(sum[of].stored)
		}
		if p.Bytes+p.StoredBytes > 0 {
			a.Kinds = append(a.Kinds, p)
		}
	}
	for _, p := range slices.SortedFunc(maps.Values(formats), func(a, b *Part) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	}) {
		a.Formats = append(a.Formats, *p)
	}
	return a
}

// last is the answer with all that is in it.
func (e *estimator) last() *Answer {
	a := e.answer()
	a.Groups = e.groups(e.takes())
	return a
}
