// Package order says in which order files are packed that are there at once: those of a folder that was
// adopted, or that a start finds. What others are stored with the help of has to be in the store before them.
//
//	age       the oldest first: what was made of another file is younger, mostly
//	numbers   those of a series, such as the steps of a run, by their numbers, in the places that they have
//	kinds     those of a family of models by what can be made of what, in the places that they have: single
//	          precision, of which half precision may be the rounding; half precision; what was converted to
//	          GGUF; what is quantised. Among those of a kind the order stays
//
//	age      base-bf16  notes.txt  base-f32   a.so  base-Q4.gguf  chat-bf16
//	place        1          2         3         4        5            6
//	order    base-f32   notes.txt  base-bf16  a.so  chat-bf16     base-Q4.gguf
//
// Age alone does not tell of conversions: of two repositories that are downloaded, the smaller one comes
// first.
//
// A family are the files that have tensors in common, by the ends of their names without numbers and by their
// shapes, and what has some in common with one of these: shards, other precisions, other formats. So there
// may be models in it that have nothing but their architecture in common. That costs nothing: a file changes
// its place among these alone.
//
// Nothing is stored against a rounding. So where a model in half precision has fine-tunes, and the one in
// single precision is there, too, the first fine-tune is stored alone in place of that model. That is the
// lesser evil: in the other order both models are.
//
// A wrong order costs bytes, never correctness.
package order

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/fs/pack"
	"ckptfs/fs/recipes"
	"ckptfs/index/runs"
)

// Kind is what can be made of a model: a model may be made of those of lower kinds.
type Kind int8

const (
	None Kind = iota // it has no such tensors, or it is not known
	Single
	Half
	Converted // to GGUF, in single or half precision
	Quantised
)

const (
	// LeastModel is the size of a file, in bytes, from which on it is looked at: to read the beginning of a
	// smaller one takes as long as to pack it.
	LeastModel = 256 << 10
	// headBytes is what the tensors of a file may take while it is looked at.
	headBytes = 64 << 20
	// maxRoles bounds what families are told by.
	maxRoles = 1 << 16
)

var heads = detect.New(headBytes)

// Model is what is known of a file with tensors. The zero value is none.
type Model struct {
	Kind  Kind
	roles []uint64
}

// Look looks at the beginning of a file, and where the format has it there at its end. What cannot be read is
// no model.
func Look(r io.ReaderAt, size int64) Model {
	if size < LeastModel {
		return Model{}
	}
	var head [detect.SniffLen]byte
	if n, err := r.ReadAt(head[:], 0); err != nil || !detect.Sniff(head[:n], size) {
		return Model{}
	}
	l, err := heads.Detect(r, size)
	if err != nil {
		return Model{}
	}
	return modelOf(l)
}

// modelOf is the model of a layout.
func modelOf(l *formats.Layout) Model {
	var single, half int64
	kind := None
	for i := range l.Tensors {
		t := &l.Tensors[i]
		switch {
		case t.Region < 0:
		case recipes.Quantised(t):
			kind = Quantised
		case t.DType == formats.F32:
			single += t.NumBytes()
		case t.DType == formats.BF16, t.DType == formats.F16:
			half += t.NumBytes()
		}
	}
	switch {
	case kind == Quantised:
	case single == 0 && half == 0:
		return Model{}
	case l.Format == "gguf":
		kind = Converted
	case single >= half:
		kind = Single
	default:
		kind = Half
	}
	return Model{kind, pack.Roles(l.Tensors)}
}

// FirstTurn is the turn of what all others of a step may be made of.
const FirstTurn = 1

// Turn says when a file of a step is packed among the others of the step: what others may be made of comes
// first. below are the names below the step that lead to it. 0: whenever.
//
// An average goes on from the weights of its step, which no type tells, but names do.
func (m Model) Turn(below []string) int {
	if m.Kind == None {
		return 0
	}
	turn := FirstTurn + 2*int(m.Kind-Single)
	for _, name := range below {
		words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r < 'a' || r > 'z' })
		if slices.ContainsFunc(words, func(w string) bool { return slices.Contains(averages, w) }) {
			return turn + 1
		}
	}
	return turn
}

// averages are words in the names of averages of weights.
var averages = []string{"ema", "swa", "avg", "average", "averaged"}

// file is one that is put in order.
type file struct {
	path  string
	mtime int64 // nanoseconds
	up    int32 // one of the same family: a tree's root is its own
	kind  Kind
}

// Files are put in order. The zero value has none.
type Files struct {
	files []file
	roles map[uint64]int32 // a file that has each; at most maxRoles
	alone map[int32]bool   // families of one file, by their roots; known after Sorted
}

// Add adds a file.
func (o *Files) Add(path string, mtime int64, m Model) {
	n := int32(len(o.files))
	o.files = append(o.files, file{path: path, mtime: mtime, up: n, kind: m.Kind})
	if o.roles == nil {
		o.roles = map[uint64]int32{}
	}
	for _, role := range m.roles {
		if other, ok := o.roles[role]; ok {
			o.files[o.root(other)].up = o.root(n)
		} else if len(o.roles) < maxRoles {
			o.roles[role] = n
		}
	}
}

// root is the root of the family of file n.
func (o *Files) root(n int32) int32 {
	for o.files[n].up != n {
		up := o.files[n].up
		o.files[n].up = o.files[up].up
		n = up
	}
	return n
}

// Sorted lists the files, by the numbers in which they were added, in the order in which they are packed.
func (o *Files) Sorted() []int32 {
	all := make([]int32, len(o.files))
	for i := range all {
		all[i] = int32(i)
	}
	slices.SortFunc(all, func(a, b int32) int {
		x, y := &o.files[a], &o.files[b]
		return cmp.Or(cmp.Compare(x.mtime, y.mtime), runs.Compare(x.path, y.path), cmp.Compare(a, b))
	})
	o.byNumber(all)
	o.byKind(all)
	return all
}

// byNumber puts the files of each series in order.
func (o *Files) byNumber(all []int32) {
	series := map[string][]int{}
	for place, n := range all {
		if p := o.files[n].path; hasNumbers(p) {
			s := runs.Series(p)
			series[s] = append(series[s], place)
		}
	}
	for _, places := range series {
		rearrange(all, places, func(a, b int32) int { return runs.Compare(o.files[a].path, o.files[b].path) })
	}
}

func hasNumbers(p string) bool {
	_, numbers := runs.Numbers(p)
	return len(numbers) > 0
}

// byKind puts the files of each family in order.
func (o *Files) byKind(all []int32) {
	family := map[int32][]int{}
	for place, n := range all {
		if o.files[n].kind != None {
			root := o.root(n)
			family[root] = append(family[root], place)
		}
	}
	o.alone = map[int32]bool{}
	for root, places := range family {
		o.alone[root] = len(places) == 1
		rearrange(all, places, func(a, b int32) int { return cmp.Compare(o.files[a].kind, o.files[b].kind) })
	}
}

// rearrange puts what is at some places of all, which are in order, in another order there. What is equal
// stays as it is.
func rearrange(all []int32, places []int, compare func(a, b int32) int) {
	if len(places) < 2 {
		return
	}
	some := make([]int32, len(places))
	for k, place := range places {
		some[k] = all[place]
	}
	slices.SortStableFunc(some, compare)
	for k, place := range places {
		all[place] = some[k]
	}
}

// Family is a number above zero that the files of one family have, after Sorted, by the number in which a file
// was added. One that is of no family, or alone in its own, has none: 0.
func (o *Files) Family(n int32) int32 {
	if root := o.root(n); o.files[n].kind != None && !o.alone[root] {
		return root + 1
	}
	return 0
}
