// Package derived says from which others stored tensors are computed, or which they are stored as the
// difference from: for one tensor (Way), and for a file as a whole (Reproduction).
//
// Records are looked at, never decoded: where a tensor's chunks lie, and of one of these, of the kind that
// most of its bytes are of, the names of its bases and its program; of a few others of this kind the names of
// their bases, which may be of other tensors. A base is a chunk. Which tensor of which file it is of, is told
// by the files' manifests: those of the files that explain most of the bytes, of equals the ones that come
// first (sources.go). Lists of chunks are read of tensors that may be it by their name or number of elements,
// in the file's own folder of any, and no more than maxLists of them.
package derived

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/quant"
	"ckptfs/cas/recipe"
	"ckptfs/cas/segment"
	"ckptfs/formats"
	"ckptfs/fs/control"
	"ckptfs/index/manifest"
)

// Store is what is read of packed files.
type Store interface {
	Manifest(h cas.Hash) (*manifest.Manifest, error)
	// List reads the list of an object of a manifest.
	List(of, h cas.Hash, buf []byte) ([]byte, error)
	Locate(hashes []cas.Hash, locs []cas.Location) error
	// With calls f with the segment that has the record of h, which Locate found at loc, and its place there.
	With(h cas.Hash, loc cas.Location, f func(*segment.Reader, cas.Location) error) error
}

// File is a packed file.
type File struct {
	Path     string
	Manifest cas.Hash
	Doc      *manifest.Manifest // nil until it is asked for
}

// doc is the manifest of f; nil where it cannot be read.
func (f *File) doc(st Store) *manifest.Manifest {
	if f.Doc == nil {
		f.Doc, _ = st.Manifest(f.Manifest)
	}
	return f.Doc
}

// Way is how a tensor is stored, or was found to be.
type Way struct {
	control.StoredAs

	tensor *formats.Tensor
	raw    int64 // bytes of all of its region
	so     int64 // bytes of the chunks that are stored so
	taken  int64 // what these take

	program recipe.Program
	beside  int   // bases at the end that have scales of the others
	first   int64 // of the chunk that was looked at, in bytes of the region
	bases   []cas.Hash
	sizes   []int64    // of the bases' contents
	rest    []cas.Hash // bases of other chunks of the tensor
	some    bool       // of which not all were looked at
	at      []*source  // of bases, then of rest; nil: not found
}

// maxLooks is how many chunks of a tensor are looked at.
const maxLooks = 8

// Follows reports whether the tensor is a function of its bases, and of little else.
func (w *Way) Follows() bool { return w != nil && w.Op != opDifference }

const (
	opQuantised   = "quantised"
	opDequantised = "dequantised"
	opTaken       = "taken"
	opWidened     = "widened"
	opRounded     = "rounded"
	opCombined    = "combined"
	opDifference  = "difference"
)

// scales is the format of scales that lie beside codes.
var scales = quant.ScalesOf.String()

// Ways are how tensors of f are stored, by their places in its manifest; nil where one is stored by itself, or
// nothing is known. Bases are named by Name.
func Ways(st Store, f *File, tensors []int) ([]*Way, error) {
	ways, known := make([]*Way, len(tensors)), map[int]*Way{}
	doc := f.doc(st)
	if doc == nil {
		return ways, nil
	}
	places := newPlaces(st, f)
	for i, n := range tensors {
		t := &doc.Tensors[n]
		if t.Region < 0 {
			continue
		}
		w, ok := known[t.Region]
		if !ok {
			var err error
			if w, err = wayOf(st, t, places.spans(&doc.Regions[t.Region], nil)); err != nil {
				return nil, err
			}
			known[t.Region] = w
		}
		ways[i] = w
	}
	return ways, nil
}

// kinds are the codecs of chunks that have bases, those first that are told before others.
var kinds = [...][]byte{{codec.Recipe}, {codec.Rounded}, {codec.Delta, codec.LowRank, codec.Patch}}

func wayOf(st Store, t *formats.Tensor, spans []manifest.Span) (*Way, error) {
	hashes := make([]cas.Hash, len(spans))
	for i := range spans {
		hashes[i] = spans[i].Hash
	}
	locs := make([]cas.Location, len(spans))
	if err := st.Locate(hashes, locs); err != nil {
		return nil, err
	}
	w := &Way{tensor: t}
	var raw, taken [len(kinds)]int64
	for i, l := range locs {
		w.raw += int64(spans[i].Len)
		if l.Segment == 0 { // a remote has it
			continue
		}
		w.Bytes += l.RecordSize()
		for k := range kinds {
			if slices.Contains(kinds[k], l.Codec) {
				raw[k], taken[k] = raw[k]+int64(spans[i].Len), taken[k]+l.RecordSize()
			}
		}
	}
	k := slices.Index(raw[:], slices.Max(raw[:]))
	if raw[k] == 0 {
		return nil, nil
	}
	w.so, w.taken, w.Share = raw[k], taken[k], float64(raw[k])/float64(w.raw)
	var so []int // chunks
	for i, l := range locs {
		if l.Segment != 0 && slices.Contains(kinds[k], l.Codec) {
			so = append(so, i)
		} else if len(so) == 0 {
			w.first += int64(spans[i].Len)
		}
	}
	if err := w.look(st, hashes[so[0]], locs[so[0]]); err != nil || len(w.bases) == 0 {
		return nil, nil // damaged or just moved, and not what was asked about
	}
	w.lookOn(st, hashes, locs, so)
	return w, nil
}

// lookOn reads the bases of further chunks: so are those that are stored alike.
func (w *Way) lookOn(st Store, hashes []cas.Hash, locs []cas.Location, so []int) {
	n := min(len(so), maxLooks)
	w.some = n < len(so)
	for i := 1; i < n; i++ {
		at := so[i*(len(so)-1)/(n-1)]
		base, err := readBase(st, hashes[at], locs[at])
		if err != nil {
			w.some = true
			continue
		}
		bases := base.Hashes()
		bases = bases[:max(len(bases)-w.beside, min(1, len(bases)))]
		for _, h := range bases {
			if !slices.Contains(w.bases, h) && !slices.Contains(w.rest, h) {
				w.rest = append(w.rest, h)
			}
		}
	}
}

// readBase reads what a record is computed or differs from.
func readBase(st Store, h cas.Hash, loc cas.Location) (base segment.Base, err error) {
	err = st.With(h, loc, func(r *segment.Reader, at cas.Location) (err error) {
		base, err = r.ReadBase(at, h)
		return err
	})
	if loc.Codec == codec.LowRank {
		base.Second = cas.Hash{} // the columns
	}
	return base, err
}

// look reads what the record of one chunk says.
func (w *Way) look(st Store, h cas.Hash, loc cas.Location) error {
	w.Op = opDifference
	if loc.Codec != codec.Recipe {
		base, err := readBase(st, h, loc)
		if err != nil {
			return err
		}
		if loc.Codec == codec.Rounded {
			w.Op, w.Format = opRounded, string(w.tensor.DType)
		}
		return w.of(st, base)
	}
	var base segment.Base
	var payload []byte
	err := st.With(h, loc, func(r *segment.Reader, at cas.Location) (err error) {
		if at.Stored > cas.MaxChunk {
			return cas.ErrTooLarge
		}
		var rec segment.Record
		payload, err = r.ReadRecord(at, h, &rec, make([]byte, segment.RecordHeaderSize+int(at.Stored)))
		if err == nil {
			base, err = segment.ParseBase(rec.Codec, payload)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := w.read(payload[base.Size():], float64(loc.Raw)); err != nil {
		return err
	}
	return w.of(st, base)
}

// of sets what the chunk that is looked at is computed or differs from.
func (w *Way) of(st Store, base segment.Base) error {
	w.bases = base.Hashes()
	locs := make([]cas.Location, len(w.bases))
	if err := st.Locate(w.bases, locs); err != nil {
		return err
	}
	for _, l := range locs {
		w.sizes = append(w.sizes, int64(l.Raw))
	}
	if k := w.scalesFrom(); k > 0 && k < len(w.bases) {
		w.bases, w.sizes, w.beside = w.bases[:k], w.sizes[:k], len(w.bases)-k
	}
	return nil
}

// scalesFrom is the first base that has scales of others; 0: none has.
func (w *Way) scalesFrom() int {
	if len(w.program) < 2 {
		return 0
	}
	for _, op := range w.program {
		if a, ok := op.(recipe.Aside); ok && len(a.Groups) > 0 && len(a.Groups[0].Stretches) > 0 {
			return w.baseOf(int64(a.Groups[0].Stretches[0].First) * int64(a.Type.Size()))
		}
	}
	take, ok := w.program[0].(recipe.Take)
	d, is := w.program[1].(recipe.Dequantise)
	if !ok || !is || d.N == 0 {
		return 0
	}
	at := 0
	for _, g := range take.Groups {
		for k := range g.Repeat {
			for _, s := range g.Stretches {
				if at+s.Len > d.N { // what goes on in the next base is one stretch
					return w.baseOf(int64(s.First + k*s.Step + d.N - at))
				}
				at += s.Len
			}
		}
	}
	return 0
}

// read reads a program and what its streams take, of a chunk of so many bytes.
func (w *Way) read(p []byte, raw float64) error {
	prog, streams, err := recipe.Parse(p)
	if err != nil {
		return err
	}
	sizes, err := recipe.StreamSizes(streams)
	if err != nil {
		return err
	}
	w.program, w.Op, w.Format = prog, opTaken, string(w.tensor.DType)
	corrections := 0
	for _, op := range prog {
		switch op := op.(type) {
		case recipe.Widen:
			if w.Op == opTaken {
				w.Op = opWidened
			}
		case recipe.Dequantise:
			w.Op, w.Format = opDequantised, op.Format.String()
		case recipe.Round:
			if w.Op != opDequantised {
				w.Op = opRounded
			}
		case recipe.Quantise:
			w.Op, w.Format, w.Variant = opQuantised, op.Quantiser.Format.String(), int(op.Quantiser.Variant)
			corrections = max(0, len(sizes)-len(quant.Streams{})+quant.FirstCorrection)
		case recipe.Combine:
			switch {
			case len(op.C) > 1:
				w.Op, w.Form = opCombined, forms[op.Form]
			case w.Op != opDequantised && op.To != recipe.F32:
				w.Op = opRounded
			}
		}
	}
	for i, n := range sizes {
		if w.Op == opQuantised && i < corrections {
			w.Scales += float64(n) / raw
		} else {
			w.Corrections += float64(n) / raw
		}
	}
	return nil
}

var forms = map[recipe.Form]string{recipe.Sum: "sum", recipe.SumEach: "sum", recipe.Mean: "mean",
	recipe.MeanEach: "mean", recipe.Lerp: "lerp", recipe.LerpEach: "lerp", recipe.Task: "task",
	recipe.TaskEach: "task", recipe.Average: "average", recipe.AverageEach: "average", recipe.Move: "average",
	recipe.AverageApart: "average", recipe.MoveApart: "average", recipe.Tasks: "sum", recipe.TasksEach: "sum",
	recipe.Stock: "sum", recipe.StockEach: "sum"}
