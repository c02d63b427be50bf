package codec

import (
	"bytes"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"ckptfs/cas"
	"ckptfs/cas/codectest"
)

func inputs() map[string][]byte {
	return map[string][]byte{
		"empty":    {},
		"one byte": {7},
		"zeros":    make([]byte, cas.ChunkSize),
		"random":   codectest.Random(cas.ChunkSize),
		"short":    codectest.Random(100),
		"text":     bytes.Repeat([]byte("step 17 loss 0.3125\n"), 9000),
		"fp32":     codectest.Weights(cas.ChunkSize, 4),
		"bf16":     codectest.Weights(cas.ChunkSize, 2),
		"odd":      codectest.Weights(100003, 4),
		"blocks":   append(make([]byte, 200<<10), codectest.Random(300<<10)...),
		"longest":  make([]byte, cas.MaxChunk),
	}
}

func TestRoundTrip(t *testing.T) {
	for name, raw := range inputs() {
		t.Run(name, func(t *testing.T) {
			id, stored := Encode(nil, raw, Hint{})
			if len(stored) > len(raw) {
				t.Errorf("%d bytes became %d", len(raw), len(stored))
			}
			if id != Raw && len(stored) > len(raw)-len(raw)/32 {
				t.Errorf("codec %d was taken for %d of %d bytes", id, len(stored), len(raw))
			}
			got, err := Decode(nil, id, stored, len(raw))
			if err != nil || !bytes.Equal(got, raw) {
				t.Fatalf("codec %d: %v", id, err)
			}
			// Behind what dst holds already.
			pre := []byte("kept")
			id2, out := Encode(bytes.Clone(pre), raw, Hint{})
			if id2 != id || !bytes.Equal(out, append(bytes.Clone(pre), stored...)) {
				t.Error("appended, it is encoded differently")
			}
			got, err = Decode(bytes.Clone(pre), id, stored, len(raw))
			if err != nil || !bytes.Equal(got, append(bytes.Clone(pre), raw...)) {
				t.Error("appended, it is decoded differently")
			}
		})
	}
}

func TestWhatIsTaken(t *testing.T) {
	for name, want := range map[string]byte{"zeros": Zstd, "random": Raw, "short": Raw, "text": Zstd,
		"fp32": Zstd, "bf16": Zstd} {
		if id, _ := Encode(nil, inputs()[name], Hint{}); id != want {
			t.Errorf("%s: codec %d, want %d", name, id, want)
		}
	}
}

// Decoding writes to the rawLen bytes and to nothing else, in parallel into one array as well.
func TestDecodeStaysInItsBytes(t *testing.T) {
	raw := codectest.Weights(10007, 4)
	planes := encodePlanes(nil, raw, Hint{})
	for c, stored := range map[Codec][]byte{
		rawCodec{}:    raw,
		zstdCodec{}:   zstdCodec{}.Encode(nil, raw, Hint{}),
		planesCodec{}: planes,
	} {
		id := c.ID()
		const n = 16
		all := bytes.Repeat([]byte{0xee}, n*(len(raw)+1))
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				off := i * (len(raw) + 1)
				out, err := c.Decode(all[off:off], stored, len(raw)) // capacity to the end of all
				if err != nil || len(out) != len(raw) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i := range n {
			p := all[i*(len(raw)+1):][:len(raw)+1]
			if !bytes.Equal(p[:len(raw)], raw) || p[len(raw)] != 0xee {
				t.Errorf("codec %d: part %d is damaged", id, i)
			}
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	raw := codectest.Weights(5000, 4)
	enc := zstdEncoder().EncodeAll(raw, nil)
	stream, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var noSize bytes.Buffer // a streamed frame states no size
	stream.Reset(&noSize)
	_, _ = stream.Write(bytes.Repeat(raw, 100))
	stream.Close()
	huge := zstdEncoder().EncodeAll(make([]byte, 64<<20), nil)

	for _, c := range []struct {
		name   string
		id     byte
		stored []byte
		rawLen int
		want   error
	}{
		{"unknown codec", 99, enc, 5000, cas.ErrNewer},
		{"raw, too short", Raw, raw, 5001, cas.ErrCorrupt},
		{"raw, too long", Raw, raw, 4999, cas.ErrCorrupt},
		{"zstd, wrong size", Zstd, enc, 4999, cas.ErrCorrupt},
		{"zstd, empty", Zstd, nil, 5000, cas.ErrCorrupt},
		{"zstd, empty for nothing", Zstd, nil, 0, cas.ErrCorrupt},
		{"zstd, cut", Zstd, enc[:len(enc)-1], 5000, cas.ErrCorrupt},
		{"zstd, no frame", Zstd, raw, 5000, cas.ErrCorrupt},
		{"zstd, two frames", Zstd, append(bytes.Clone(enc), enc...), 5000, cas.ErrCorrupt},
		{"zstd, no size", Zstd, noSize.Bytes(), 500000, cas.ErrCorrupt},
		{"zstd, bomb", Zstd, huge, 5000, cas.ErrCorrupt},
		{"zstd, past the bound", Zstd, huge, 64 << 20, cas.ErrTooLarge},
		{"negative", Zstd, enc, -1, cas.ErrTooLarge},
		{"skippable", Zstd, []byte{0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0}, 0, cas.ErrCorrupt},
	} {
		out, err := Decode([]byte("kept"), c.id, c.stored, c.rawLen)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if string(out) != "kept" {
			t.Errorf("%s: dst became %d bytes", c.name, len(out))
		}
	}
}

// A frame that states a size and needs less is no reason to take memory; nor is one that lies.
func TestDecodeAllocatesWhatIsAskedFor(t *testing.T) {
	huge := zstdEncoder().EncodeAll(make([]byte, 64<<20), nil)
	_, _ = Decode(nil, Zstd, huge, 4096) // fills the decoder's pools
	res := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			_, _ = Decode(nil, Zstd, huge, 4096)
		}
	})
	if n := res.AllocedBytesPerOp(); n > 16<<10 {
		t.Errorf("%d bytes to refuse a frame", n)
	}
}

// decodeBound is what Decode may allocate besides its result, for states that are pooled afterwards.
const decodeBound = 8 << 20

func FuzzDecode(f *testing.F) {
	for _, raw := range inputs() {
		if len(raw) <= cas.ChunkSize {
			f.Add(zstdCodec{}.Encode(nil, raw, Hint{}), len(raw))
			for _, h := range hints {
				stored := encodePlanes(nil, raw, h)
				f.Add(stored, len(raw))
			}
		}
	}
	periodic := encodePlanes(nil, middles(100000), Hint{"F32", 4})
	f.Add(periodic, 100000)
	f.Fuzz(func(t *testing.T, stored []byte, rawLen int) {
		for _, id := range []byte{Raw, Zstd, Planes} {
			buf := []byte("before")
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			out, err := Decode(buf, id, stored, rawLen)
			runtime.ReadMemStats(&after)
			bound := decodeBound + uint64(min(max(rawLen, 0), cas.MaxChunk))
			if took := after.TotalAlloc - before.TotalAlloc; took > bound {
				t.Fatalf("codec %d: %d bytes of memory for %d", id, took, rawLen)
			}
			if err == nil && len(out) != len(buf)+rawLen || err != nil && len(out) != len(buf) {
				t.Fatalf("codec %d: %d bytes, %v", id, len(out), err)
			}
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	for i := range hints {
		f.Add(codectest.Weights(4096, 4), i)
		f.Add(make([]byte, 3000), i)
	}
	f.Fuzz(func(t *testing.T, raw []byte, i int) {
		h := hints[uint(i)%uint(len(hints))]
		id, stored := Encode(nil, raw, h)
		got, err := Decode(nil, id, stored, len(raw))
		if err != nil || !bytes.Equal(got, raw) {
			t.Fatal(err)
		}
	})
}
