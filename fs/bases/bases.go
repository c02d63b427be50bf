// Package bases finds, for a file that is about to be packed, the stored manifests that its tensors may be
// stored against. A wrong guess costs bytes, never correctness: a manifest that does not match costs a look,
// and one that was forgotten some bytes. It looks, in this order and until most of the file's tensors are
// found, at
//
//	the same path      as it was packed or opened for writing last
//	the steps before   the same path with a lower number in one of its names, the closest first:
//	                   model-100.pt beside model-200.pt, checkpoint-100/model.pt beside
//	                   checkpoint-200/model.pt; and what else is in its folder there, since a step may be
//	                   one file and the next one several
//	the parent         that the file's step declares: what is called as the file is there, and what else is
//	what is alike      files packed before whose tensors end alike in their names and have the same shapes:
//	                   a run's base, say. They may have nothing else in common: that is for samples to tell
//
// Of each it takes what has tensors that are not found yet, by the names that package pack finds them under.
// Files that look for what is alike are packed one after the other if they are alike, so that a base and
// fine-tunes that are copied in at once find each other.
//
// Of tensors that are found nowhere there, packing looks for others that have marks in common with them
// (package index/anchors), whatever they are called and however long ago they were stored. Quantised ones may
// be made of any, others in a walk over stored files only of those before.
//
// After a start the first two are found by the names as they are, and what is alike among the files that were
// packed last.
//
// Which of a tensor's regions is compared with which is decided by package pack, which record by cas/store,
// and whether a difference pays by cas/delta.
//
// Its state is what it remembers: paths (Finder), samples of signs (Signatures), the names in folders
// (folders) and the files that are being packed (underway). All are bounded, and none outlives the process.
// Their locks are leaves: nothing is locked under them.
package bases

import (
	"context"
	"strconv"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/locks"
	"ckptfs/formats"
	"ckptfs/fs/pack"
	"ckptfs/fs/tree"
	"ckptfs/index/anchors"
	"ckptfs/index/manifest"
	"ckptfs/index/runs"
)

// The locks of this package.
type (
	signaturesLock struct{} // Signatures.mu
	foldersLock    struct{} // folders.mu
	underwayLock   struct{} // underway.mu
)

func (signaturesLock) Rank() (int, string) { return locks.Volume + 900, "bases.Signatures.mu" }
func (foldersLock) Rank() (int, string)    { return locks.Volume + 901, "bases.folders.mu" }
func (underwayLock) Rank() (int, string)   { return locks.Volume + 902, "bases.underway.mu" }

const rememberedPaths = 4096

// Store is what a Finder needs of the store.
type Store interface {
	// Manifest reads a stored manifest.
	Manifest(h cas.Hash) (*manifest.Manifest, error)
	// Latest lists at most n manifests, those stored last first.
	Latest(n int) []cas.Hash
}

// Options say where a Finder looks.
type Options struct {
	Store Store
	Root  int // a descriptor of the tree's root
	// At, if not nil, is the manifest of the file at a path, instead of what the tree has there.
	At func(p string) (cas.Hash, bool)
	// Parents lists the paths that the step of the file at p, which may be the step itself, says it came
	// from. Paths are relative to the tree's root.
	Parents func(p string) []string
	// Anchors knows stored tensors by marks of their numbers; nil: none are looked for by these.
	Anchors *anchors.Index
	// Failed is told why anchors could not be noted; nil: nobody is.
	Failed func(error)
	// NoRecipes: no file is computed from others.
	NoRecipes bool
	// Alone reports whether the file at a path is stored without the help of others; nil: none is.
	Alone func(p string) bool
}

// Finder finds what files may be stored against. A nil Finder finds nothing. It may be used by several
// goroutines at once.
type Finder struct {
	o        Options
	paths    *lru.Cache[string, cas.Hash] // the last manifest of each path, which may not be published yet
	alike    Signatures
	sources  Signatures // of those of whose numbers others may be made
	codes    Signatures // of those that have codes
	masters  Signatures // of those with tensors of which others may be the rounding
	underway underway
	folders  *folders
	recalled sync.Once
}

// New makes a Finder that remembers nothing yet.
func New(o Options) *Finder {
	f := &Finder{o: o, folders: newFolders()}
	if f.o.Alone == nil {
		f.o.Alone = func(string) bool { return false }
	}
	f.paths, _ = lru.New[string, cas.Hash](rememberedPaths) // the size is positive
	return f
}

// NotePath remembers that the file at a path has, or had, a manifest: what is saved there next is likely its
// next version.
func (f *Finder) NotePath(p string, h cas.Hash) {
	if f != nil {
		f.paths.Add(p, h)
	}
}

// Came says that there is a new name in the folder with an inode number.
func (f *Finder) Came(folder uint64, name string) {
	if f != nil {
		f.folders.note(folder, change{name, true})
	}
}

// Went says that a name in the folder with an inode number is not there any more.
func (f *Finder) Went(folder uint64, name string) {
	if f != nil {
		f.folders.note(folder, change{name, false})
	}
}

// Gone says that nothing has an inode number any more.
func (f *Finder) Gone(ino uint64) {
	if f != nil {
		f.folders.gone(ino)
	}
}

// Note is NotePath of a file that was packed; was are those manifests of which it is the next version. Of a
// slight one next to nothing had to be stored.
func (f *Finder) Note(p string, h cas.Hash, l *formats.Layout, was []cas.Hash, slight bool) {
	if f != nil {
		f.paths.Add(p, h)
		signs := pack.Signs(l.Tensors)
		for _, s := range f.kinds(l.Tensors) {
			s.note(signs, h, was, slight)
		}
	}
}

// Related is what the file at p, of a layout l, may be stored with the help of; was are those of which it is
// the next version. A file that looks for what is alike waits, until ctx ends, for those that are alike and
// did so before. end says that it is noted, or will not be: others may wait for that.
func (f *Finder) Related(ctx context.Context, p string, l *formats.Layout) (
	rel pack.Related, was []cas.Hash, end func()) {
	end = func() {}
	if f == nil {
		return rel, nil, end
	}
	if f.o.Alone(p) {
		return pack.Related{NoRecipes: true}, nil, end
	}
	rel, was = f.earlier(p, l, nil, func(signs []uint64) []cas.Hash {
		end = f.underway.come(ctx, signs)
		return f.alikeTo(&f.alike, signs)
	})
	rel.Masters, rel.Series = f.mastersOf(p, l), runs.Series(p)
	rel.Sources, rel.NoRecipes = f.sourcesOf(p, l, nil), f.o.NoRecipes
	rel.Anchors, rel.Beside = f.anchors(nil, nil), f.besideOf(p, l, &rel)
	return rel, was, end
}

// RelatedAmong is Related for a walk over stored files, the oldest first: named says of a manifest that a
// file has it, not says of one that the walk was not there yet, and what is alike is looked for among those
// that the walk has noted.
func (f *Finder) RelatedAmong(p string, l *formats.Layout, named, not func(cas.Hash) bool,
	among *Signatures) (rel pack.Related, was []cas.Hash) {
	if f == nil {
		return rel, nil
	}
	if f.o.Alone(p) {
		return pack.Related{NoRecipes: true}, nil
	}
	rel, was = f.earlier(p, l, not, among.of)
	rel.Masters, rel.Sources, rel.NoRecipes = f.mastersOf(p, l), f.sourcesOf(p, l, not), f.o.NoRecipes
	rel.Anchors = f.anchors(named, not)
	return rel, was
}

// alikeTo lists the manifests that were noted last in s of files with tensors of such signs.
func (f *Finder) alikeTo(s *Signatures, signs []uint64) []cas.Hash {
	f.recalled.Do(f.recall)
	return s.of(signs)
}

// kinds are the signatures that a file of such tensors is noted in.
func (f *Finder) kinds(tensors []formats.Tensor) []*Signatures {
	all := []*Signatures{&f.alike}
	switch {
	case isSource(tensors):
		all = append(all, &f.sources)
	case isQuantised(tensors):
		all = append(all, &f.codes)
	}
	if isMaster(tensors) {
		all = append(all, &f.masters)
	}
	return all
}

// maxLately is the number of files whose signs are read after a start.
const maxLately = 128

// recall notes the files that were packed last before the start.
func (f *Finder) recall() {
	for _, h := range f.o.Store.Latest(maxLately) {
		if m, err := f.o.Store.Manifest(h); err == nil {
			signs := pack.Signs(m.Tensors)
			for _, s := range f.kinds(m.Tensors) {
				s.recall(signs, h)
			}
		}
	}
}

// at is the manifest of the file at a path below the tree's root, without looking through symbolic links.
func (f *Finder) at(rel string) (cas.Hash, bool) {
	if h, ok := f.paths.Get(rel); ok {
		return h, true // it may not be published yet
	}
	if f.o.At != nil {
		return f.o.At(rel)
	}
	fd, err := tree.OpenBelow(f.o.Root, rel, unix.O_PATH)
	if err != nil {
		return cas.Hash{}, false
	}
	defer unix.Close(fd)
	var b [tree.RecordSize + 1]byte
	k, err := unix.Getxattr("/proc/self/fd/"+strconv.Itoa(fd), tree.XattrName, b[:])
	if err != nil {
		return cas.Hash{}, false
	}
	rec, err := tree.DecodeRecord(b[:k])
	return rec.Manifest, err == nil && rec.Packed() && !rec.Remote
}
