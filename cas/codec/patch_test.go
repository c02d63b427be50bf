package codec

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"ckptfs/cas"
	"ckptfs/cas/codectest"
)

// skeleton is a JSON document of n entries, of which each version changes a few.
func skeleton(n, version int) []byte {
	var b bytes.Buffer
	for i := range n {
		v := i * i
		if i%50 == version%50 {
			v += version
		}
		fmt.Fprintf(&b, `{"name":"layer.%d.weight","value":%d,"id":"%x"},`, i, v, cas.Sum([]byte{byte(i), byte(i >> 8)}))
	}
	return b.Bytes()
}

func TestPatch(t *testing.T) {
	base, raw := skeleton(1000, 1), skeleton(1010, 2)
	_, alone := Encode(nil, raw, Hint{})
	id, out, ok := EncodeAgainst([]byte("before"), raw, base, Hint{}, len(raw))
	if !ok || id != Patch || !bytes.HasPrefix(out, []byte("before")) {
		t.Fatalf("codec %d, %v", id, ok)
	}
	out = out[6:]
	t.Logf("%d bytes: alone %d, as a patch %d", len(raw), len(alone), len(out))
	if len(out) > len(alone)/20 {
		t.Errorf("%d bytes alone, %d as a patch", len(alone), len(out))
	}
	for _, dst := range [][]byte{nil, []byte("x"), make([]byte, 1, 1<<20)} {
		got, err := DecodeAgainst(dst, id, out, base, len(raw))
		if err != nil || !bytes.Equal(got[len(dst):], raw) {
			t.Fatal(err)
		}
	}
	if _, _, ok := EncodeAgainst(nil, raw, base, Hint{}, len(out)-1); ok {
		t.Error("more than was allowed")
	}
	if _, _, ok := EncodeAgainst(nil, raw, base[:10], Hint{}, len(raw)); ok {
		t.Error("a base of 10 bytes was used")
	}
	for name, c := range map[string]struct {
		stored, base []byte
		n            int
	}{
		"no frame":     {nil, base, 10},
		"other length": {out, base, len(raw) + 1},
		"cut":          {out[:len(out)-3], base, len(raw)},
		"other base":   {out, base[:100], len(raw)},
	} {
		got, err := DecodeAgainst(nil, Patch, c.stored, c.base, c.n)
		if err == nil && bytes.Equal(got, raw) || err != nil && !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := DecodeAgainst(nil, 99, out, base, len(raw)); !errors.Is(err, cas.ErrNewer) {
		t.Error(err)
	}
}

// TestPatches: what an encoder and a decoder did before leaves no trace, and the frames are those that
// EncodeAll makes.
func TestPatches(t *testing.T) {
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for range 50 {
				base, raw := skeleton(1+r.IntN(500), r.IntN(50)), skeleton(1+r.IntN(500), r.IntN(50))
				raw = raw[r.IntN(len(raw)/2):]
				if _, err := DecodeAgainst(nil, Patch, raw, base, len(raw)); !errors.Is(err, cas.ErrCorrupt) {
					t.Errorf("text was decoded: %v", err)
				}
				_, out, ok := EncodeAgainst(nil, raw, base, Hint{}, 2*len(raw))
				if !ok {
					t.Errorf("%d bytes were not encoded against %d", len(raw), len(base))
					continue
				}
				if len(raw) <= shortPatch && len(base) <= shortPatch {
					enc, err := newPatchEncoder(zstd.SpeedFastest, 2*shortPatch, base)
					if err != nil || !bytes.Equal(enc.EncodeAll(raw, nil), out) {
						t.Errorf("%d bytes against %d: another frame by an encoder that did nothing before: %v", len(raw), len(base), err)
					}
				}
				dec, err := zstd.NewReader(nil, zstd.WithDecoderDictRaw(0, base))
				if err != nil {
					t.Error(err)
					continue
				}
				if got, err := dec.DecodeAll(out, nil); err != nil || !bytes.Equal(got, raw) {
					t.Errorf("%d bytes against %d: %v", len(raw), len(base), err)
				}
				dec.Close()
			}
		})
	}
	all.Wait()
}

func TestAgainstNumbers(t *testing.T) {
	h := Hint{"F32", 4}
	base := codectest.Weights(cas.ChunkSize, 4)
	raw := step(base, h, 1e-3)
	id, out, ok := EncodeAgainst(nil, raw, base, h, len(raw))
	if !ok || id != Delta || !NeedsBase(id) || NeedsBase(Planes) {
		t.Fatal(id, ok)
	}
	if got, err := DecodeAgainst(nil, id, out, base, len(raw)); err != nil || !bytes.Equal(got, raw) {
		t.Error(err)
	}
}

func FuzzDecodePatch(f *testing.F) {
	base, raw := skeleton(20, 1), skeleton(21, 2)
	_, out, _ := EncodeAgainst(nil, raw, base, Hint{}, len(raw))
	f.Add(out, base, len(raw))
	f.Fuzz(func(t *testing.T, stored, base []byte, n int) {
		if n < 0 || n > 1<<20 {
			return
		}
		if out, err := DecodeAgainst(nil, Patch, stored, base, n); err == nil && len(out) != n {
			t.Fatalf("%d bytes, want %d", len(out), n)
		}
	})
}
