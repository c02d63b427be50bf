package virtual

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"
	"unsafe"

	"ckptfs/cas/locks"
	"ckptfs/formats"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/plans"
	"ckptfs/fs/view"
)

// tensorIndex finds the tensors of a file by their files' names. One name is looked for where the tensors
// are; who asks for more has a table made, of 8 bytes a tensor.
type tensorIndex struct {
	src    *names.Node // not to be used: only its identity counts
	gen    uint64
	layout *formats.Layout
	bytes  int64 // about what it takes, with the table

	mu     locks.Mutex[leafLock]
	looked bool     // a name was looked for
	table  []uint64 // hash of the file's name << 32 | index into layout.Tensors; ascending
}

var tensorSeed = maphash.MakeSeed()

func hashOf(name string) uint64 { return maphash.String(tensorSeed, name) >> 32 << 32 }

// find is the first tensor whose file has a name, and that NumPy can have; -1 when there is none.
func (x *tensorIndex) find(name string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.layout.Tensors
	if !x.looked {
		x.looked = true
		for i := range all {
			if x.isLocked(i, name) {
				return i
			}
		}
		return -1
	}
	if x.table == nil {
		x.table = make([]uint64, len(all))
		for i := range all {
			x.table[i] = hashOf(view.TensorFile(all[i].Name)) | uint64(i)
		}
		slices.Sort(x.table)
	}
	h := hashOf(name)
	at, _ := slices.BinarySearch(x.table, h)
	for ; at < len(x.table) && x.table[at]>>32 == h>>32; at++ {
		if i := int(uint32(x.table[at])); x.isLocked(i, name) {
			return i
		}
	}
	return -1
}

// isLocked reports whether the file of tensor i has a name.
func (x *tensorIndex) isLocked(i int, name string) bool {
	t := &x.layout.Tensors[i]
	if !view.IsTensorFile(t.Name, name) {
		return false
	}
	_, err := view.Npy(x.layout.Regions, t)
	return err == nil
}

// weigh sets bytes.
func (x *tensorIndex) weigh() {
	x.bytes = 512 + int64(len(x.layout.Regions))*int64(unsafe.Sizeof(formats.Region{}))
	for i := range x.layout.Tensors {
		t := &x.layout.Tensors[i]
		x.bytes += int64(unsafe.Sizeof(*t)) + 8 + int64((len(t.Name)+15)&^15) +
			int64(cap(t.Shape)+cap(t.Stride))*8
	}
}

// tensorIndexes keeps what was found of files' tensors, to be used again: what was asked for last, of
// maxBytes in all, but one of any size, and none for longer than lingers after it was asked for. What sets
// pin counts, too (hold).
type tensorIndexes struct {
	mu       locks.Mutex[leafLock]
	last     []*found    // the latest asked for last
	bytes    int64       // of all, and what is held
	held     int64       // of that what is held
	sweeping *time.Timer // nil: there are none

	maxBytes int64
	lingers  time.Duration
}

// found is one of these: the tensors of a file, the plan of a view or of a computed file, or the size of a
// view.
type found struct {
	key   any // fileKey: of an index; *View: of a plan; sizeKey; computedKey
	bytes int64
	asked time.Time

	index *tensorIndex
	plan  *view.View
	made  *plans.Plan
	size  int64 // 0: there is no view
}

// sizeKey is the key of the size of a safetensors file of a file's tensors.
type sizeKey fileKey

func (s *tensorIndexes) get(src *names.Node, gen uint64) *tensorIndex {
	if x := s.find(fileKey{src, gen}); x != nil {
		return x.index
	}
	return nil
}

// find is what is kept by a key, or nil.
func (s *tensorIndexes) find(key any) *found {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.last) - 1; i >= 0; i-- {
		x := s.last[i]
		if x.key == key {
			copy(s.last[i:], s.last[i+1:])
			s.last[len(s.last)-1] = x
			x.asked = time.Now()
			return x
		}
	}
	return nil
}

func (s *tensorIndexes) put(x *tensorIndex) {
	x.weigh()
	s.keep(&found{key: fileKey{x.src, x.gen}, bytes: x.bytes, index: x})
}

// keep keeps x, and drops others for it.
func (s *tensorIndexes) keep(x *found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.asked = time.Now()
	s.last = append(s.last, x)
	s.bytes += x.bytes
	s.shrinkLocked(1)
	if s.sweeping == nil {
		s.sweeping = time.AfterFunc(s.lingers, s.sweep)
	}
}

// shrinkLocked drops what was asked for longest ago, but for so many, until the rest fits.
func (s *tensorIndexes) shrinkLocked(but int) {
	for s.bytes > s.maxBytes && len(s.last) > but {
		s.dropLocked()
	}
}

// forget drops what is kept by a key.
func (s *tensorIndexes) forget(key any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = slices.DeleteFunc(s.last, func(x *found) bool {
		if x.key == key {
			s.bytes -= x.bytes
		}
		return x.key == key
	})
}

// hold makes room for so many bytes, until they are given back (by a negative number); false if so much is
// held already that they do not fit beside it.
func (s *tensorIndexes) hold(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 && s.held > 0 && s.held+n > s.maxBytes {
		return false
	}
	s.held += n
	s.bytes += n
	s.shrinkLocked(0)
	return true
}

// dropLocked drops the one that was asked for longest ago.
func (s *tensorIndexes) dropLocked() {
	s.mu.AssertHeld()
	s.bytes -= s.last[0].bytes
	s.last = slices.Delete(s.last, 0, 1)
}

// sweep drops what was not asked for, and comes again as long as there is any.
func (s *tensorIndexes) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.last) > 0 && time.Since(s.last[0].asked) >= s.lingers {
		s.dropLocked()
	}
	s.sweeping = nil
	if len(s.last) > 0 {
		s.sweeping = time.AfterFunc(s.lingers-time.Since(s.last[0].asked), s.sweep)
	}
}

// drop drops all.
func (s *tensorIndexes) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.bytes = nil, s.held
	if s.sweeping != nil {
		s.sweeping.Stop()
	}
}

// tensorsOf is the tensors of a file as it is now; of one that is being written, none.
func (v *Virtual) tensorsOf(src *names.Node) (*tensorIndex, error) { return v.tensorsNamed(src, "") }

// tensorsNamed is tensorsOf, if not "" at least of those whose file has a name.
func (v *Virtual) tensorsNamed(src *names.Node, name string) (*tensorIndex, error) {
	f := src.File()
	content.Closed(f)
	f.Lock()
	defer f.Unlock()
	if err := src.File().LoadLocked(); err != nil {
		return nil, src.File().OpenFailed(err)
	}
	now := f.StateLocked()
	if now.Writers > 0 || f.MappedLocked() {
		return &tensorIndex{layout: &formats.Layout{}}, nil
	}
	if x := v.tensors.get(src, now.Gen); x != nil {
		return x, nil
	}
	if name != "" {
		stem := strings.TrimSuffix(name, view.NpySuffix)
		is := func(tensor []byte) bool { // without '%' nothing in the tensor's name was escaped
			return string(tensor) == stem ||
				strings.Contains(stem, "%") && view.IsTensorFile(string(tensor), name)
		}
		switch l, ok, err := f.FindTensorLocked(is); {
		case err != nil:
			return nil, f.OpenFailed(err)
		case ok && l == nil:
			return &tensorIndex{layout: &formats.Layout{}}, nil
		case ok:
			return &tensorIndex{src: src, gen: now.Gen, layout: l}, nil
		}
	}
	l, err := src.File().LayoutLocked()
	if err != nil {
		return nil, src.File().OpenFailed(err)
	}
	x := &tensorIndex{src: src, gen: now.Gen, layout: l}
	v.tensors.put(x)
	return x, nil
}
