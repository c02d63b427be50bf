package estimate

import (
	"cmp"
	"path"
	"regexp"
	"slices"

	"ckptfs/cas/dry"
)

const (
	// related is the share of a file's bytes from which on it belongs to the file that has them.
	related = 0.2
	// mostKin bounds the files that a file is known to be related to.
	mostKin = 64
	// mostGroups is how many groups are named.
	mostGroups = 10
)

// Group is some models of which one is stored with the help of another. A model is a file, or the shards of
// one.
type Group struct {
	Name        string `json:"name"` // of the oldest model
	Models      int    `json:"models"`
	Files       int    `json:"files"`
	Bytes       int64  `json:"bytes"`
	StoredBytes int64  `json:"stored_bytes"`
	// How is the kind that most bytes of the others are of.
	How string `json:"how"`
}

// shard is the name of one file of several that are one model: model-00001-of-00004.safetensors.
var shard = regexp.MustCompile(`^(.*?)[-_.]?\d+-of-\d+(\..*)?$`)

// modelOf names the model that a file is, or is a shard of.
func modelOf(p string) string {
	if m := shard.FindStringSubmatch(path.Base(p)); m != nil {
		return path.Join(path.Dir(p), m[1]+m[2])
	}
	return p
}

// forest is sets of files (union-find). The root of a set is its oldest file.
type forest []int32

func newForest(n int) forest {
	f := make(forest, n)
	for i := range f {
		f[i] = int32(i)
	}
	return f
}

func (f forest) root(i int32) int32 {
	for f[i] != i {
		f[i] = f[f[i]]
		i = f[i]
	}
	return i
}

func (f forest) join(i, k int32) {
	i, k = f.root(i), f.root(k)
	f[max(i, k)] = min(i, k)
}

// groups are the largest groups of relatives.
func (e *estimator) groups(takes func(*file) taken) (all []Group) {
	sets := newForest(len(e.files))
	shards := map[string]int32{}
	for i, f := range e.files {
		if f.out || f.plain {
			continue
		}
		for other, n := range f.kin {
			if float64(n) >= related*float64(f.sampled) {
				sets.join(int32(i), other)
			}
		}
		if m := modelOf(f.shown); m != f.shown {
			if first, ok := shards[m]; ok {
				sets.join(int32(i), first)
			} else {
				shards[m] = int32(i)
			}
		}
	}
	members := map[int32][]int32{}
	for i := range e.files {
		if r := sets.root(int32(i)); r != int32(i) {
			members[r] = append(members[r], int32(i))
		}
	}
	for r, of := range members {
		if g := e.group(append(of, r), takes); g.Models > 1 {
			all = append(all, g)
		}
	}
	slices.SortFunc(all, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), mostGroups)]
}

// group describes files of which the last is the oldest.
func (e *estimator) group(files []int32, takes func(*file) taken) (g Group) {
	first := e.files[files[len(files)-1]]
	g.Name = modelOf(first.shown)
	models := map[string]bool{}
	var how [dry.Kinds]float64
	for _, i := range files {
		f := e.files[i]
		m, t := modelOf(f.shown), takes(f)
		models[m] = true
		g.Files++
		g.Bytes += f.size
		g.StoredBytes += int64(t.stored())
		if m == g.Name {
			continue
		}
		for k, c := range t {
			how[k] += c.raw
		}
	}
	g.Models = len(models)
	var most float64
	for _, k := range kinds {
		var raw float64
		for _, of := range k.of {
			raw += how[of]
		}
		if raw > most {
			g.How, most = k.name, raw
		}
	}
	return g
}
