package pack

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/fs/recipes"
	"ckptfs/index/manifest"
)

// Sought are the tensors of a file, to be found in others: of the same type and shape, and of the same name,
// or of one that differs in what stands before it. That is told of the whole file: a.b and a.c are model.a.b
// and model.a.c where most bytes that can be found are found by putting model. before them. Parts of names
// that only say how a module is wrapped are looked through.
type Sought struct {
	tensors []formats.Tensor
	bytes   []int64
	names   map[string]int32 // the first of each
	plain   []string         // names without wrappers; nil until they are needed
	plains  map[string]int32
	ends    []ending // of plain names, by their hashes
}

// Match is where tensors that are sought are in another file, under names that begin otherwise in one and the
// same way.
type Match struct {
	At      []int32 // for each tensor that is sought its place in the other's list; -1: it is not there
	Bytes   int64   // of those that are there
	Renamed bool    // the names are not the same
}

// ending is the end of a name, by its hash.
type ending struct {
	hash uint64
	t    int32
}

const (
	maxEndings  = 8       // of a name that are looked at
	maxSameEnd  = 16      // tensors whose names end alike
	maxRenames  = 4       // ways in which the names of two files differ
	maxRenamed  = 1 << 16 // tensors of a file beyond which only equal names are looked for
	maxRenaming = 1 << 12 // ways that are counted
	maxTries    = 1 << 16 // pairs of names that are
	maxPlain    = 1 << 10 // bytes of a name beyond which it is left as it is
)

// wrappers are parts of names that come and go with what wraps a module: data parallelism, compilation,
// sharding, activation checkpointing, adapters.
var wrappers = []string{"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "base_layer"}

var seed = maphash.MakeSeed()

// Seek prepares the search for tensors, which stay as they are meanwhile.
func Seek(tensors []formats.Tensor) *Sought {
	s := &Sought{tensors: tensors, bytes: make([]int64, len(tensors)),
		names: make(map[string]int32, len(tensors))}
	for i := range tensors {
		t := &tensors[i]
		if t.Region >= 0 {
			s.bytes[i] = max(0, t.NumBytes())
		}
		if _, ok := s.names[t.Name]; !ok {
			s.names[t.Name] = int32(i)
		}
	}
	return s
}

// Bytes are those of the tensor i, 0 when it has none of its own.
func (s *Sought) Bytes(i int) int64 { return s.bytes[i] }

// In tells where m has what is sought: under equal names first, then under those that begin otherwise, most
// bytes first. A tensor that was found by its own name is not looked for under others.
func (s *Sought) In(m *manifest.Manifest) (all []Match) {
	found := s.match(m, nil, func(name string) (int32, bool) {
		i, ok := s.names[name]
		return i, ok
	})
	if found.Bytes > 0 {
		all = append(all, found)
	}
	if len(s.tensors) > maxRenamed || len(m.Tensors) > maxRenamed {
		return all
	}
	for i, at := range found.At {
		if at < 0 && s.bytes[i] > 0 {
			return append(all, s.renamed(m, found.At)...)
		}
	}
	return all
}

// match goes through m's tensors, of which sought says which one is sought by that name, and takes the first
// of each but those that are in not.
func (s *Sought) match(m *manifest.Manifest, not []int32, sought func(string) (int32, bool)) Match {
	f := Match{At: make([]int32, len(s.tensors))}
	for i := range f.At {
		f.At[i] = -1
	}
	for k := range m.Tensors {
		t := &m.Tensors[k]
		i, ok := sought(t.Name)
		if ok && f.At[i] < 0 && (not == nil || not[i] < 0) && s.is(i, t) {
			f.At[i] = int32(k)
			f.Bytes += s.bytes[i]
		}
	}
	return f
}

// is reports whether t could be another version of the tensor i.
func (s *Sought) is(i int32, t *formats.Tensor) bool {
	own := &s.tensors[i]
	return s.bytes[i] > 0 && t.Region >= 0 && own.DType == t.DType && slices.Equal(own.Shape, t.Shape)
}

// renaming is what stands before a name there, and here.
type renaming struct{ there, here string }

// renumbers reports whether both have numbers, and other ones: layers.1.w is no version of layers.0.w.
func (r *renaming) renumbers() bool {
	there, here := numbersOf(r.there), numbersOf(r.here)
	return there != nil && here != nil && !slices.Equal(there, here)
}

// numbersOf are the parts of a name that are numbers.
func numbersOf(name string) (numbers []string) {
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool {
		return strings.ContainsRune(separators, r)
	}) {
		if strings.Trim(part, "0123456789") == "" {
			numbers = append(numbers, part)
		}
	}
	return numbers
}

// renamed is In for the tensors that are not in found.
func (s *Sought) renamed(m *manifest.Manifest, found []int32) (all []Match) {
	s.index()
	votes := map[renaming]int64{}
	tries := 0
	for k := range m.Tensors {
		t := &m.Tensors[k]
		name := plainName(t.Name)
		for _, e := range endings(name, 1) {
			hit := false
			h := maphash.String(seed, e)
			at, _ := slices.BinarySearchFunc(s.ends, h, func(e ending, h uint64) int {
				return cmp.Compare(e.hash, h)
			})
			for end := min(at+maxSameEnd, len(s.ends)); at < end && s.ends[at].hash == h &&
				tries < maxTries; at++ {
				tries++
				i := s.ends[at].t
				own := s.plain[i]
				// One part alone, such as weight, says nothing unless it is all of a name.
				if found[i] >= 0 || !s.is(i, t) || !strings.HasSuffix(own, e) ||
					!strings.ContainsAny(e, separators) && e != name && e != own {
					continue
				}
				r := renaming{name[:len(name)-len(e)], own[:len(own)-len(e)]}
				if r.renumbers() {
					continue
				}
				hit = true
				if _, known := votes[r]; known || len(votes) < maxRenaming {
					votes[r] += s.bytes[i]
				}
			}
			if hit {
				break
			}
		}
	}
	ways := make([]renaming, 0, len(votes))
	for r := range votes {
		ways = append(ways, r)
	}
	slices.SortFunc(ways, func(a, b renaming) int {
		return cmp.Or(cmp.Compare(votes[b], votes[a]), cmp.Compare(a.there, b.there),
			cmp.Compare(a.here, b.here))
	})
	for _, r := range ways[:min(len(ways), maxRenames)] {
		f := s.match(m, found, func(name string) (int32, bool) {
			rest, ok := strings.CutPrefix(plainName(name), r.there)
			if !ok {
				return 0, false
			}
			i, ok := s.plains[r.here+rest]
			return i, ok
		})
		if f.Renamed = true; f.Bytes > 0 {
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b Match) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return all
}

// index makes the names known by their ends.
func (s *Sought) index() {
	if s.plain != nil {
		return
	}
	s.plain = make([]string, len(s.tensors))
	s.plains = make(map[string]int32, len(s.tensors))
	for i := range s.tensors {
		name := plainName(s.tensors[i].Name)
		s.plain[i] = name
		if _, ok := s.plains[name]; !ok {
			s.plains[name] = int32(i)
		}
		for _, e := range endings(name, 1) {
			s.ends = append(s.ends, ending{maphash.String(seed, e), int32(i)})
		}
	}
	slices.SortFunc(s.ends, func(a, b ending) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.t, b.t))
	})
}

const separators = "./"

// endings are the names by which a tensor is looked for, the longest first: all of its name, and the ends of
// it that have so many parts at least.
func endings(name string, parts int) []string {
	ends := []string{name}
	for rest := name; len(ends) < maxEndings; {
		i := strings.IndexAny(rest, separators)
		if i < 0 || parts > 1 && !strings.ContainsAny(rest[i+1:], separators) {
			break
		}
		rest = rest[i+1:]
		ends = append(ends, rest)
	}
	return ends
}

// plainName is a name without the parts that are wrappers.
func plainName(name string) string {
	if len(name) > maxPlain {
		return name
	}
	for _, w := range wrappers {
		for from := 0; ; {
			i := strings.Index(name[from:], w)
			if i < 0 {
				break
			}
			i += from
			end := i + len(w)
			if (i > 0 && !strings.ContainsRune(separators, rune(name[i-1]))) || end == len(name) ||
				!strings.ContainsRune(separators, rune(name[end])) {
				from = end
				continue
			}
			name, from = name[:i]+name[end+1:], i
		}
	}
	return name
}

// Numbers are the numbers in a tensor's name, which its versions have in whatever format: of its layer, and
// of what else there are several of. Those at the end of words count where the layer's comes behind them, as
// in layer2.0.conv1: formats call the parts of a layer otherwise.
func Numbers(name string) []string {
	name = plainName(name)
	numbers := numbersOf(name)
	if len(numbers) == 0 {
		return nil
	}
	words := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(separators, r) })
	var all []string
	for i, left := 0, len(numbers); left > 0; i++ {
		number := words[i][len(strings.TrimRight(words[i], "0123456789")):]
		if number == words[i] {
			left--
		}
		if number != "" {
			all = append(all, number)
		}
	}
	return all
}

// Signs are hashes of the ends of tensors' names with their shapes, in order: two files have as many of them
// in common as they have tensors, whatever else stands before the names, and in whatever types; of very many
// the first ones speak for all. They are good for the life of the process.
func Signs(tensors []formats.Tensor) (signs []uint64) {
	tensors = tensors[:min(len(tensors), maxRenamed)]
	var h maphash.Hash
	h.SetSeed(seed)
	var shape []byte
	for i := range tensors {
		t := &tensors[i]
		if t.Region < 0 {
			continue
		}
		shape = shape[:0]
		for _, d := range t.Shape {
			shape = binary.AppendVarint(shape, d)
		}
		sign := func(name string) {
			h.Reset()
			h.WriteString(name)
			h.WriteByte(0)
			h.Write(shape)
			signs = append(signs, h.Sum64())
		}
		for _, e := range endings(plainName(t.Name), 2) {
			sign(e)
		}
		for _, name := range recipes.Names(t.Name) {
			for _, e := range endings(name, 2) {
				sign(e)
			}
		}
	}
	slices.Sort(signs)
	return slices.Compact(signs)
}
