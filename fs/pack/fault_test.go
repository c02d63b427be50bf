package pack

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// shrinking is a file that is cut to n bytes once it has been looked at.
type shrinking struct {
	mu   sync.Mutex
	p    []byte
	n    int64
	when int // reads before
	err  error
}

func (s *shrinking) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.when--; s.when < 0 {
		if s.err != nil {
			return 0, s.err
		}
		return bytes.NewReader(s.p[:s.n]).ReadAt(p, off)
	}
	return bytes.NewReader(s.p).ReadAt(p, off)
}

func TestSourceFails(t *testing.T) {
	b := memBench(t)
	broken := errors.New("input/output error")
	big := tensors(t, named{"a", random(3<<20, 6)}, named{"b", random(100, 1)})
	pads := make([]byte, 100_000)
	for name, src := range map[string][]byte{"tensors": big, "blob": random(3<<20, 7), "pads": pads} {
		l := formats.BlobLayout(int64(len(src)))
		switch name {
		case "tensors":
			var err error
			if l, err = (safetensors.Parser{}).Parse(bytes.NewReader(src), int64(len(src))); err != nil {
				t.Fatal(err)
			}
		case "pads":
			l.Regions[0].Kind = formats.Pad
		}
		for when := range 3 {
			for _, fault := range []error{nil, broken} {
				batch := b.st.Begin()
				r := &shrinking{p: src, n: int64(len(src)) / 2, when: when, err: fault}
				_, err := b.p.Layout(t.Context(), batch, r, int64(len(src)), l, Related{})
				batch.Release()
				if fault == nil && !errors.Is(err, io.ErrUnexpectedEOF) && (err != nil || when < 1) ||
					fault != nil && err != broken && (err != nil || when < 2) {
					t.Errorf("%s, read %d: %v, want %v", name, when, err, fault)
				}
			}
		}
	}
	// Through File, where the first to read is detect.
	batch := b.st.Begin()
	defer batch.Release()
	if _, err := b.p.File(t.Context(), batch, &shrinking{err: broken}, 1000); err != broken {
		t.Error(err)
	}
}

// failingBatch refuses the nth Put.
type failingBatch struct {
	Batch
	mu sync.Mutex
	n  int
}

var errFull = errors.New("no space left")

func (f *failingBatch) Put(kind cas.Kind, h cas.Hash, raw []byte, hint codec.Hint) (bool, error) {
	fresh, _, err := f.PutRelated(kind, h, raw, hint, cas.Related{})
	return fresh, err
}

func (f *failingBatch) PutRelated(kind cas.Kind, h cas.Hash, raw []byte, hint codec.Hint,
	rel cas.Related) (bool, byte, error) {
	f.mu.Lock()
	f.n--
	n := f.n
	f.mu.Unlock()
	if n == -1 {
		return false, 0, errFull
	}
	return f.Batch.PutRelated(kind, h, raw, hint, rel)
}

// endless is a large file, and tells of each read.
type endless struct{ read func() }

func (e endless) ReadAt(p []byte, off int64) (int, error) {
	e.read()
	for i := range p {
		p[i] = byte(i) * byte(off>>18)
	}
	return len(p), nil
}

func TestCancel(t *testing.T) {
	b := memBench(t)
	for name, kind := range map[string]formats.Kind{"data": formats.Data, "blob": formats.Blob} {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		n := 0
		r := endless{func() {
			mu.Lock()
			defer mu.Unlock()
			if n++; n == 3 {
				cancel()
			}
		}}
		batch := b.st.Begin()
		const size = 1 << 40
		_, err := b.p.Layout(ctx, batch, r, size,
			&formats.Layout{Regions: []formats.Region{{Len: size, Kind: kind}}}, Related{})
		batch.Release()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		if n > 100 {
			t.Errorf("%s: %d reads", name, n)
		}
		if len(b.p.slots) != 0 {
			t.Errorf("%s: %d workers left", name, len(b.p.slots))
		}
		if _, err := b.p.File(ctx, nil, r, size); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A disk that fails fails the file.
func TestStoreFails(t *testing.T) {
	src := tensors(t, named{"a", random(3<<20, 6)}, named{"b", random(100, 1)})
	b := memBench(t)
	if _, err := b.p.File(t.Context(), &failingBatch{Batch: b.st.Begin(), n: 1 << 30}, bytes.NewReader(src),
		int64(len(src))); err != nil {
		t.Fatal(err)
	}
	for n := range 16 { // 12 chunks, a list, a tensor, the header, the manifest
		f := &failingBatch{Batch: memBench(t).st.Begin(), n: n}
		_, err := b.p.File(t.Context(), f, bytes.NewReader(src), int64(len(src)))
		if !errors.Is(err, errFull) {
			t.Errorf("put %d: %v", n, err)
		}
	}
}
