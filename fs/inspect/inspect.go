// Package inspect says what tensors a path leads to, wherever they lie, and what two paths have in common:
// show, diff, find, cat-tensor, and what each step of a run added.
//
// A path leads to a set of arrays: those of one file, of the files that an index names, of an ONNX model and
// its data, or of a folder that torch.distributed.checkpoint or Orbax wrote (set.go). An array is one tensor
// of a file, or several that are its pieces, or chunks as zarr has them (array.go). Elements are read through
// plans of views, so that any file that has a layout will do.
//
// There is no lock, and no state but what one run's steps added (log.go): each request looks at the files
// again, and keeps them pinned until it is answered.
package inspect

import (
	"context"
	"io"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
	"ckptfs/formats"
	"ckptfs/formats/canonical"
	"ckptfs/formats/detect"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
	"ckptfs/index/manifest"
)

// Files is the mount's tree as the daemon reads it for itself: no permissions are checked, and no reading
// is counted.
type Files interface {
	// Open finds a file, a folder or a view, and pins it.
	Open(path string) (File, error)
	// Follow is Open of the file that the symbolic link at a path leads to, within the mount.
	Follow(path string) (File, error)
	// Walk calls f with every regular file at or below a path. It is pinned while f runs.
	Walk(ctx context.Context, path string, f func(path string, file File) error) error
	// List reads the names of a folder, "." and ".." among them, views not.
	List(path string) ([]tree.DirEntry, error)
	// ReadSmall reads a file of at most so many bytes.
	ReadSmall(path string, most int64) ([]byte, error)
}

// File is a file, a folder or a view. Two are equal if they are the same.
type File interface {
	Pin() // keeps it known until as many Unpins
	Unpin()
	Path() string // by one of its names
	Ino() uint64  // its inode number
	Info() (Info, error)
	Manifest() (cas.Hash, error) // zero: it is not packed
	// Contents is what a regular file holds now; tree.ErrNotRegular for another.
	Contents() (*Contents, error)
	// Detect finds the layout in a regular file's bytes, whatever its manifest says.
	Detect() (*formats.Layout, error)
	// Open makes its bytes readable until done is called. size is what it has then.
	Open() (r io.ReaderAt, size int64, done func(), err error)
}

// Info is what a File is.
type Info struct {
	Size    int64
	Dir     bool
	Virtual bool  // it is below .ckptfs
	Regular bool  // it is a file of the tree
	Waits   bool  // it is to be packed
	Mtime   int64 // nanoseconds since 1970
	View    *View // nil: it is none
	// Gen is another one whenever a regular file may have other bytes, as long as it is pinned.
	Gen uint64
}

// View is what a view shows.
type View struct {
	Source File
	Format string
	Only   *formats.Tensor // nil: all
}

// Contents is what a regular file holds at one moment.
type Contents struct {
	Layout   *formats.Layout
	Manifest cas.Hash           // zero: it is not packed
	Doc      *manifest.Manifest // nil: it is not packed
	Resident bool               // its bytes are in the tree, too, or there alone
}

// Store is what of packed files is read without opening them.
type Store interface {
	Manifest(h cas.Hash) (*manifest.Manifest, error)
	Get(h cas.Hash, buf []byte) ([]byte, error)
	// List is Get of the list of an object of a manifest.
	List(of, h cas.Hash, buf []byte) ([]byte, error)
	Locate(hashes []cas.Hash, locs []cas.Location) error
	// With calls f with the segment that has the record of h, which Locate found at loc, and its place there.
	With(h cas.Hash, loc cas.Location, f func(*segment.Reader, cas.Location) error) error
}

// spans are the chunks of an object of a manifest.
func (ins *Inspector) spans(of cas.Hash, o *manifest.Object) ([]manifest.Span, error) {
	return o.Spans(func(h cas.Hash, buf []byte) ([]byte, error) { return ins.store.List(of, h, buf) })
}

// Artifacts knows the ids of files.
type Artifacts interface {
	Known(f File) (id canonical.ID, ok bool, err error)
	Of(ctx context.Context, f File) (canonical.ID, error)
}

// Options say what an Inspector looks at.
type Options struct {
	Files     Files
	Store     Store
	Steps     *steps.Steps
	Artifacts Artifacts
	Detect    *detect.Detector
	Keeps     func(*formats.Layout) bool // whether a manifest of a layout can be written
	// told of a tensor that could not be read, of which the program sees the end only
	Unread func(path, tensor string, err error)
	// KeepLog bounds what is kept of the runs whose logs were asked for last, in bytes of memory.
	KeepLog int64
	Spill   *disk.Folder // where what takes much memory lies meanwhile; nil: in memory
}

// Inspector answers what tensors there are.
type Inspector struct {
	files     Files
	store     Store
	steps     *steps.Steps
	artifacts Artifacts
	detect    *detect.Detector
	keeps     func(*formats.Layout) bool
	unread    func(path, tensor string, err error)
	logs      logs
	spill     *disk.Folder
}

// New makes an Inspector.
func New(o Options) *Inspector {
	return &Inspector{files: o.Files, store: o.Store, steps: o.Steps, artifacts: o.Artifacts,
		detect: o.Detect, keeps: o.Keeps, unread: o.Unread, logs: logs{most: o.KeepLog}, spill: o.Spill}
}

// OpenPath makes the bytes of the file at a path readable until done is called.
func OpenPath(files interface {
	Open(path string) (File, error)
}, path string) (r io.ReaderAt, size int64, done func(), err error) {
	f, err := files.Open(path)
	if err != nil {
		return nil, 0, nil, err
	}
	return OpenPinned(f)
}

// OpenPinned makes the bytes of a pinned file readable until done is called, which unpins it.
func OpenPinned(f File) (r io.ReaderAt, size int64, done func(), err error) {
	r, size, closeIt, err := f.Open()
	if err != nil {
		f.Unpin()
		return nil, 0, nil, err
	}
	return r, size, func() { closeIt(); f.Unpin() }, nil
}
