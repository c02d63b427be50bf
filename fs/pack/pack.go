// Package pack turns a file into records: chunks, the lists of objects of several chunks, and the manifest.
//
// A file is packed in one pass:
//
//	detect  which format, which regions (package formats/detect)
//	plan    data regions become objects of their own, cut on the grid of cas.ChunkSize; blobs of at least
//	        64 KiB become objects of their own, cut by content; the smaller ones are joined in file order
//	        into one object, the skeleton, cut by content; in a fine layout all blobs are, cut finely, in
//	        several objects that end where the content says so, so that a document that grows shares the
//	        lists of what was there before; pads become extents of zeros, after they were seen to be zeros
//	cut     one goroutine walks the plan and makes batches of chunks, about 512 KiB of the file each; workers
//	        help it find the cuts of large blobs
//	hash    workers read and hash batches and put the chunks, which costs next to nothing for those that are
//	        held
//	name    the last chunk of an object to be hashed makes its list and its digest
//	write   the manifest goes in last
//
// When files are known that have earlier versions of its tensors (match.go says which these are), chunk k of
// a tensor is put against chunk k of the one before. Where several have a tensor, samples tell which is the
// nearest (origins.go). Of one of these files the skeleton's chunks are looked for where that has them,
// several at a time, and cut by content again where something else has come; what is found has the ends that
// a cutter would find. What changed in the skeleton is put against what stood there, and the manifest against
// the manifest, most of which is the digests of what did not change. The store tells from samples whether
// that pays; of a region where it mostly does not, only now and then a chunk is tried. Of a short tensor,
// which is one chunk, it is the steps before that tell (trials.go).
//
// Of a matrix that changed, two to sixteen chunks are looked at, the longer its rows the more, to tell
// whether the difference may be of low rank, as it is of weights into which an adapter was merged
// (lowrank.go). If so, factors are made of up to 32 chunks of it, and each chunk is stored with the help of
// these where that takes less.
//
// Memory is bounded by the batches in flight and by 36 bytes a chunk of the objects in flight; while factors
// are made, by some 60 MiB more, for one tensor at a time and one more for every eight workers.
//
// The manifest describes the bytes that were read and hashed, never those that a parser saw: if the file
// changes on the way, what comes out is a manifest of some mixture that was read, or an error, and it is the
// caller's part to notice the change and throw it away.
package pack

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/index/anchors"
	"ckptfs/index/manifest"
)

// Store is what a Packer asks of *store.Store.
type Store interface {
	Locate(hashes []cas.Hash, locs []cas.Location) error
	Get(h cas.Hash, dst []byte) ([]byte, error)
	Against(rel cas.Related) (base cas.Hash, ok bool)
	Key(prev cas.Hash) (key cas.Hash, ok bool)
}

// Batch is what a Packer asks of *store.Batch.
type Batch interface {
	Put(kind cas.Kind, h cas.Hash, raw []byte, hint codec.Hint) (fresh bool, err error)
	PutHeld(kind cas.Kind, hashes []cas.Hash, held []bool) error
	PutRelated(kind cas.Kind, h cas.Hash, raw []byte, hint codec.Hint,
		rel cas.Related) (fresh bool, id byte, err error)
}

// Options configures a Packer.
type Options struct {
	Workers int   // batches hashed at a time, over all files; 0: as many as processors
	Bytes   int64 // that what works on them may take, with one of them at least; 0: no bound
	// LayoutBytes is what the tensors of a file may take while they are read; 0: what the formats allow.
	LayoutBytes int64
	// Turn is called before a batch is worked on, and over when it is done; it may wait. nil: nothing is
	// waited for.
	Turn func(ctx context.Context) (over func(), err error)
}

// workerBytes is what a batch at work takes: its bytes, a coder's state (package codec), and what a chunk is
// encoded, and compared with its base, in.
const workerBytes = 4 << 20

// Packer packs files into one store. It is safe for concurrent use.
type Packer struct {
	store  Store
	detect *detect.Detector
	lists  *lists
	trials *Trials
	slots  chan struct{} // one in it for each batch at work
	turn   func(ctx context.Context) (over func(), err error)
	// factoring has one in it for each tensor of which factors are made.
	factoring chan struct{}

	object limits
	record int // longest manifest
}

// New returns a Packer for st.
func New(st Store, opt Options) *Packer {
	if opt.Workers <= 0 {
		opt.Workers = cas.Processors
	}
	if opt.Bytes > 0 {
		opt.Workers = max(1, min(opt.Workers, int(opt.Bytes/workerBytes)))
	}
	if opt.Turn == nil {
		opt.Turn = func(context.Context) (func(), error) { return func() {}, nil }
	}
	return &Packer{
		store:  st,
		detect: detect.New(opt.LayoutBytes),
		lists:  newLists(),
		trials: NewTrials(),
		slots:  make(chan struct{}, opt.Workers),
		turn:   opt.Turn,

		factoring: make(chan struct{}, 1+opt.Workers/8),

		object: limits{manifest.MaxObject, maxSpans},
		record: cas.MaxChunk,
	}
}

// Detector is what finds the layouts of files that are to be packed.
func (p *Packer) Detector() *detect.Detector { return p.detect }

// Result is a packed file.
type Result struct {
	Hash     cas.Hash // of the manifest record
	Manifest *manifest.Manifest

	// What this file added to the store: records of all kinds, their bytes before and after encoding.
	Fresh, FreshRaw, FreshStored int64
	// Anchors are those of tensors that have something new, by their places in the manifest.
	Anchors []anchors.Tensor

	Deltas int64 // of the records: how many are stored against an earlier one

	Search *SearchError // why nothing was stored with the help of others; nil: nothing kept it from that
}

// File packs the size bytes of r into b. The caller commits b, and must do so before it relies on the result.
// An error of r's comes back as it is; a file that ends early is io.ErrUnexpectedEOF, wrapped.
func (p *Packer) File(ctx context.Context, b Batch, r io.ReaderAt, size int64) (*Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l, err := p.detect.Detect(r, size)
	if err != nil {
		return nil, err
	}
	return p.Layout(ctx, b, r, size, l, Related{})
}

// errLayout: the manifest of this layout cannot be written.
var errLayout = errors.New("layout cannot be kept")

// ErrPresumed: the layout was presumed, and the file has too much that is new for that.
var ErrPresumed = errors.New("the file is not mostly what it was before")

// What may be new in a file whose layout is presumed, and one over the share of what is known up to there
// that may be new besides.
const (
	mayBeNew  = 128 << 10
	presuming = 16
)

// Layout packs as File does, by a layout that is known already.
func (p *Packer) Layout(ctx context.Context, b Batch, r io.ReaderAt, size int64, l *formats.Layout,
	rel Related) (*Result, error) {
	res := &Result{}
	err := p.pack(ctx, b, r, size, l, rel, res)
	if errors.As(err, &res.Search) {
		if rel.Presumed {
			return nil, fmt.Errorf("%w: %w", ErrPresumed, err)
		}
		err = p.pack(ctx, b, r, size, l, Related{Series: rel.Series, NoRecipes: true}, res)
	}
	if errors.Is(err, errLayout) {
		// The file matters more than what is known of it.
		err = p.pack(ctx, b, r, size, formats.BlobLayout(size), Related{}, res)
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// Manifest puts a manifest of objects that the store holds into b, and returns its hash. The error wraps
// cas.ErrTooLarge when it is longer than a record may be.
func (p *Packer) Manifest(b Batch, m *manifest.Manifest) (cas.Hash, error) {
	enc, err := m.Encode()
	if err != nil {
		return cas.Hash{}, err
	}
	if len(enc) > p.record {
		return cas.Hash{}, fmt.Errorf("manifest of %d bytes: %w", len(enc), cas.ErrTooLarge)
	}
	h := cas.Sum(enc)
	_, err = b.Put(cas.Manifest, h, enc, codec.Hint{})
	return h, err
}

// pack adds to res, so that a second try counts what the first one added.
func (p *Packer) pack(ctx context.Context, b Batch, r io.ReaderAt, size int64, l *formats.Layout, rel Related,
	res *Result) error {
	if err := l.Check(size); err != nil {
		return fmt.Errorf("%w: %w", errLayout, err)
	}
	j := newJob(ctx, p, b, r)
	if j.crowd = p.crowded(l); j.crowd == tooMany {
		return fmt.Errorf("%w: %d tensors are too many: %w", errLayout, len(l.Tensors), cas.ErrTooLarge)
	}
	defer func() {
		res.Fresh += j.fresh.Load()
		res.FreshRaw += j.freshRaw.Load()
		res.FreshStored += j.freshStored.Load()
		res.Deltas += j.deltas.Load()
	}()
	defer j.cancel()
	plan, err := j.plan(l)
	if err != nil {
		return err
	}
	if err := searching(func() error {
		j.masters.addFiles(j.store, rel.Masters)
		j.addSources(rel.Sources)
		return j.lookBack(rel, l.Tensors, l.Regions, firsts(l.Tensors, len(l.Regions)), j.read)
	}); err != nil {
		return err
	}
	j.size, j.anchors, j.noRecipes, j.beside = size, rel.Anchors, rel.NoRecipes, rel.Beside
	j.series, j.alone = rel.Series, size <= batchBytes
	if j.mayBeNew = size; rel.Presumed {
		j.mayBeNew = min(mayBeNew, size/presuming)
	}
	if err := j.finish(j.cut(plan, l)); err != nil {
		return err
	}
	m := plan.manifest(l, size)
	enc, err := m.Encode()
	if err != nil {
		return fmt.Errorf("%w: %w", errLayout, err)
	}
	if len(enc) > j.record {
		return fmt.Errorf("%w: manifest of %d bytes: %w", errLayout, len(enc), cas.ErrTooLarge)
	}
	res.Hash, res.Manifest, res.Anchors = cas.Sum(enc), m, plan.marks(l)
	return j.putAgainst(cas.Manifest, res.Hash, enc, hashOf(j.before))
}

// hashOf is the hash of e's manifest; zero when there is none. A manifest has one encoding.
func hashOf(e *earlier) (h cas.Hash) {
	if e == nil {
		return h
	}
	enc, err := e.m.Encode()
	if err != nil {
		return h
	}
	return cas.Sum(enc)
}
