package plans

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"testing/iotest"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// spec is a tensor of testdata/files.json: [name, dtype, shape, pattern, seed].
type spec struct {
	safetensors.Entry
	pattern string
	seed    uint64
}

func (s *spec) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&s.Name, &s.DType, &s.Shape, &s.pattern, &s.seed})
}

// data is the tensor's bytes, as testdata/reference.py makes them.
func (s *spec) data() []byte {
	width := s.DType.Bits() / 8
	var out []byte
	for i := s.seed * 1000003; int64(len(out)) < s.NumBytes(); i++ {
		h := i * 2654435761 & 0xffffffff
		var x uint64
		switch {
		case s.pattern == "flags":
			x = h >> 31
		case s.pattern == "bits" && width == 8:
			x = h<<32 | i
		case s.pattern == "bits" && width == 4:
			x = h
		case s.pattern == "bits":
			x = i
		default:
			sign, exponent, frac := h&1, 121+h>>1&3, h>>9
			x = sign<<31 | exponent<<23 | frac
			if s.DType == formats.BF16 {
				x >>= 16
			} else if s.DType == formats.F16 {
				x = sign<<15 | (exponent-112)<<10 | frac>>13
			}
		}
		out = append(out, le.AppendUint64(nil, x)[:width]...)
	}
	return out
}

// file is one that was made of specs.
type file struct {
	*Source
	bytes []byte
}

// made makes a file of testdata/files.json, with the tensors that keep accepts.
func made(t testing.TB, name string, metadata []safetensors.Pair, keep func(*spec) bool) file {
	t.Helper()
	b, err := os.ReadFile("testdata/files.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]spec
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	var kept []spec
	var entries []safetensors.Entry
	for _, s := range all[name] {
		if keep == nil || keep(&s) {
			kept = append(kept, s)
			entries = append(entries, s.Entry)
		}
	}
	return build(t, entries, metadata, func(i int) []byte { return kept[i].data() })
}

// build makes a file of tensors in this order.
func build(
	t testing.TB, entries []safetensors.Entry, metadata []safetensors.Pair, data func(i int) []byte,
) file {
	t.Helper()
	p, err := safetensors.AppendSaved(nil, entries, metadata)
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		p = append(p, data(i)...)
	}
	s, err := Open(bytes.NewReader(p), int64(len(p)), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return file{s, p}
}

var pt = []safetensors.Pair{{Key: "format", Value: "pt"}}

// at is a plan over its sources.
type at struct {
	*Plan
	src []io.ReaderAt
}

func over(p *Plan, files ...file) at {
	a := at{Plan: p}
	for _, f := range files {
		a.src = append(a.src, bytes.NewReader(f.bytes))
	}
	return a
}

func (a at) ReadAt(p []byte, off int64) (int, error) { return a.Plan.ReadAt(a.src, p, off) }

func (a at) all(t testing.TB) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(a, 0, a.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// saved compares a plan with what torch saves, and reads it in parts.
func (a at) saved(t testing.TB, name string) {
	t.Helper()
	b, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string][2]any
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	whole := a.all(t)
	sum := sha256.Sum256(whole)
	if w := want[name]; w[0] != float64(a.Size()) || w[1] != hex.EncodeToString(sum[:]) {
		t.Errorf("%s: %d bytes %x, want %v", name, a.Size(), sum[:4], w)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		off := r.Int64N(a.Size())
		p := make([]byte, r.Int64N(min(a.Size()-off, 5000)+1))
		if n, err := a.ReadAt(p, off); n != len(p) || err != nil {
			t.Fatalf("%s: read of %d at %d: %d, %v", name, len(p), off, n, err)
		}
		if !bytes.Equal(p, whole[off:off+int64(len(p))]) {
			t.Fatalf("%s: read of %d at %d has other bytes", name, len(p), off)
		}
	}
	if a.Size() > 50_000 { // it reads byte by byte
		return
	}
	if err := iotest.TestReader(io.NewSectionReader(a, 0, a.Size()), whole); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// refused expects that there is no such file.
func refused(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, ErrNone) {
		t.Errorf("%s: %v", what, err)
	}
}

// Cast has the bytes that torch writes, of numbers of all bits, NaNs among them.
func TestCast(t *testing.T) {
	for _, to := range []formats.DType{formats.F32, formats.F16, formats.BF16} {
		f := made(t, "bits", pt, func(s *spec) bool { return to != formats.BF16 || s.DType != formats.F64 })
		p, err := Cast(f.Source, to)
		if err != nil {
			t.Fatal(err)
		}
		over(p, f).saved(t, "cast "+string(to))
	}
	f := made(t, "bits", nil, nil)
	p, err := Cast(f.Source, formats.F32)
	if err != nil {
		t.Fatal(err)
	}
	over(p, f).saved(t, "cast F32 without metadata")
	_, err = Cast(f.Source, formats.F64)
	refused(t, "to F64", err)
}
