// Package estimate says what folders would take in a store, without one.
//
// It does not model packing, it packs: the layouts are those of formats/detect, bases are found by fs/bases,
// files are cut by fs/pack, and chunks go to cas/dry, which encodes them as cas/store would and counts. So an
// estimate of everything is what a store takes, and a change of any of these packages changes both. What a
// model of packing would spare is the encoding, which is most of the time; but how well a delta does, or
// whether a difference is of low rank, only the encoding tells.
//
// # Samples
//
// A first answer has to come long before everything was read. So the tensors are dealt into shells, and the
// same packing runs on one shell after the other. Of each file a shell has a smaller file, with the tensors
// of that shell alone:
//
//	file     | header | a.weight         | b.weight | c.weight |
//	shell 0  | a.weight[0] | c.weight |              a long tensor is several slices
//	shell 1  | header | a.weight[1] |
//
// The shell of a slice depends on what it has in common with its versions in whatever format: the numbers in
// its name, and how many elements the tensor has. What is not cut of a layer is dealt together, for some is
// computed of more than one, under names that tell nothing: codes, their scales, and what they were. So a shell
// has of a base exactly what it has of its fine-tunes, its copies, its roundings and its quants, and they meet
// there as they would in the store. What lies beside a tensor by its name, as scales do, goes with it. All else
// is dealt by the file's name without its numbers.
//
// What a file takes is what its sample takes, in proportion. A file that has no sample yet takes what others
// of its format do. The shells are replicates, so the spread of what they say tells the error (answer.go).
// What no sample shows is content that is equal under other names: with more shells more of it is found, and
// all of it by a full pass. An estimate errs to the high side there. So samples are never all: where those
// that have half of the bytes do not agree, everything is read.
//
// # Order
//
// Files come in the order in which a store packs what an adopt finds (fs/order). Each is packed alone: what
// its bases are does not depend on which worker was faster.
//
// # Memory
//
// A file costs some 300 bytes and its path. Tensors cost nothing while their file is not looked at; chunks
// lie in tables that the kernel may write out (cas/dry).
package estimate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"ckptfs/cas/disk"
	"ckptfs/cas/dry"
	"ckptfs/fs/control"
)

// Options say how far an estimate goes.
type Options struct {
	Full bool // read everything
	// Within is the error, as a share of all bytes, at which an estimate by samples ends.
	Within float64
	Temp   *disk.Folder // for tables and a temporary file
	// LayoutBytes is what the tensors of a file may take while they are read, as for a mount.
	LayoutBytes int64
	// Leave says of a folder why it is left out; "": it is not. nil: none is.
	Leave func(dir string) string
	// Progress is told now and then how far it is, and the answer so far, which is nil at first.
	Progress func(control.Progress, *Answer)
	Now      func() time.Time

	shell int64 // bytes that a shell has at least; 0: shellBytes
	slice int64 // elements of a slice; 0: sliceElements
}

const (
	// shellBytes is how much a shell has at least, and shellShare how much of each file on average.
	shellBytes = 64 << 20
	shellShare = 64 << 10
	// mostShells bounds the shells: each has every file looked at again.
	mostShells = 1024
	// fewShells is the number below which everything is read at once, which takes seconds.
	fewShells = 16
	// parsed: one part of so many of all bytes, if heads are as long, takes longer to parse for each shell.
	parsed = 8
	// firstShells are what is read before everything is.
	firstShells = 3
	// minShells is how many shells have to agree before an estimate ends.
	minShells = 6
	openFiles = 64
)

// estimator is an estimate at work.
type estimator struct {
	o       Options
	began   time.Time
	files   []*file // in the order in which they are packed
	root    string
	rootFD  *os.File
	left    left
	links   int // to folders, which are not followed
	outside int // links to files outside of the paths
	changed int // files
	store   *dry.Store
	open    *simplelru.LRU[uint32, *os.File]
	known   known
	opening openLock

	replicates []replicate // that were done, and the one that is being done
	read       int64       // bytes
	heads      int64       // bytes that are parsed for each shell
	told       time.Time
	said       *Answer // that was told with the progress; nil at first
	complete   bool    // everything was read

	first *Answer // by samples; nil without any
}

// Run estimates what paths would take. When ctx ends before that is done it returns the answer so far; nil
// and the context's error where there is none.
func Run(ctx context.Context, paths []string, o Options) (*Answer, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	e := &estimator{o: o, began: o.Now()}
	e.told = e.began
	if o.Progress != nil {
		o.Progress(control.Progress{Phase: "looking at names"}, nil)
	}
	if err := e.walk(ctx, paths); err != nil {
		return nil, err
	}
	return e.run(ctx)
}

// run is Run after the walk.
func (e *estimator) run(ctx context.Context) (*Answer, error) {
	fd, err := os.Open(e.root)
	if err != nil {
		return nil, err
	}
	defer fd.Close()
	e.rootFD = fd
	if shells := e.numShells(); shells >= fewShells {
		n := shells
		if e.o.Full {
			n = firstShells
		}
		enough, err := e.sample(ctx, n, shells)
		if err != nil {
			return e.soFar(ctx, err)
		}
		if enough {
			return e.last(), nil
		}
	}
	if e.read > 0 {
		e.first = e.last()
	}
	if err := e.whole(ctx); err != nil {
		if ctx.Err() != nil && e.first != nil {
			return e.first, nil
		}
		return e.soFar(ctx, err)
	}
	return e.last(), nil
}

// numShells is how many shells there are.
func (e *estimator) numShells() int {
	var long int64 // files that are looked at for each shell
	for _, f := range e.files {
		if f.size >= smallBlob {
			long++
		}
	}
	each := max(shellBytes, long*shellShare)
	if e.o.shell > 0 {
		each = e.o.shell
	}
	return int(max(1, min(mostShells, e.bytes()/each)))
}

// soFar is what becomes of an estimate that ends with err.
func (e *estimator) soFar(ctx context.Context, err error) (*Answer, error) {
	if ctx.Err() != nil && e.read > 0 {
		return e.last(), nil
	}
	return nil, err
}

func (e *estimator) bytes() (sum int64) {
	for _, f := range e.files {
		sum += f.size
	}
	return sum
}

// sample reads up to n shells, until they agree. enough says that nothing more is to be read.
func (e *estimator) sample(ctx context.Context, n, shells int) (enough bool, err error) {
	done, err := e.begin()
	if err != nil {
		return false, err
	}
	defer done()
	for k := range n {
		e.replicates = append(e.replicates, replicate{})
		if err := e.pass(ctx, k, shells); err != nil {
			return false, err
		}
		a := e.tell(int64(n)*e.read/int64(k+1), len(e.files))
		switch {
		case e.o.Full:
		case e.heads > e.bytes()/parsed, e.read > e.bytes()/2:
			return false, nil // to parse and sample on takes longer than to read everything
		case e.shells() >= minShells-0.5 && float64(a.HighBytes-a.StoredBytes) <= e.o.Within*float64(a.Bytes):
			return true, nil
		}
	}
	return false, nil
}

// whole reads everything.
func (e *estimator) whole(ctx context.Context) error {
	done, err := e.begin()
	if err != nil {
		return err
	}
	defer done()
	for _, f := range e.files {
		f.forget()
	}
	e.read, e.replicates = 0, nil
	if err := e.pass(ctx, 0, 1); err != nil {
		return err
	}
	e.complete = true
	return nil
}

// begin makes the store; done gives back what it takes.
func (e *estimator) begin() (done func(), err error) {
	if e.store, err = dry.New(e.o.Temp, e.openFile); err != nil {
		return nil, fmt.Errorf("make a temporary file in %s (TMPDIR is where it lies): %w",
			e.o.Temp.Path(), err)
	}
	// The sizes are positive.
	e.open, _ = simplelru.NewLRU(openFiles, func(_ uint32, f *os.File) { f.Close() })
	e.known = newKnown(e.o.LayoutBytes)
	return func() {
		e.open.Purge()
		e.store.Close()
	}, nil
}

// openFile opens a file that chunks came from. It may be called by several goroutines.
func (e *estimator) openFile(n uint32) (io.ReaderAt, error) {
	e.opening.Lock()
	defer e.opening.Unlock()
	if f, ok := e.open.Get(n); ok {
		return f, nil
	}
	f, err := openRegular(filepath.Join(e.root, e.files[n].path))
	if err != nil {
		return nil, err
	}
	e.open.Add(n, f)
	return f, nil
}

// tellEvery is how often progress is told of within a shell.
const tellEvery = 500 * time.Millisecond

// tell tells of the progress. What a part of everything says is no sample: the samples' answer stands.
func (e *estimator) tell(total int64, files int) *Answer {
	a := e.first
	if a == nil {
		a = e.answer()
	}
	e.told, e.said = e.o.Now(), a
	if e.o.Progress != nil {
		e.o.Progress(control.Progress{DoneBytes: e.read, TotalBytes: max(total, e.read), DoneFiles: files,
			TotalFiles: len(e.files)}, a)
	}
	return a
}

// errChanged: a file became shorter while it was read.
var errChanged = errors.New("it changed while it was read")
