package pack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/formats"
)

// crowdOf is a safetensors file of n tensors of so many bytes each, whose names end in tail, and one of
// 100 kB.
func crowdOf(n, size int, tail string, seed byte) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"t.%05d.%s":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]},`, i, tail, size, i*size, (i+1)*size)
	}
	const long = 100_000
	fmt.Fprintf(&b, `"long":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}`, long, n*size, n*size+long)
	header := "{" + b.String() + "}"
	p := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	return append(p, random(n*size+long, seed)...)
}

// TestCrowded: of a file of more tensors than a manifest has digests for the short ones are joined; each
// reads as it was, and what did not change is stored once.
func TestCrowded(t *testing.T) {
	b := memBench(t)
	b.p.record = 60_000
	src := crowdOf(2000, 256, "w", 1)
	res := b.file(t, src)
	m := res.Manifest
	if m.Format != "safetensors" || len(m.Tensors) != 2001 || len(m.Objects) > 10 ||
		len(m.Extents) > 10 {
		t.Fatalf("%s, %d tensors, %d objects, %d extents", m.Format, len(m.Tensors), len(m.Objects),
			len(m.Extents))
	}
	own := 0
	for _, h := range m.Digests() {
		if !h.IsZero() {
			own++
		}
	}
	if own != 1 {
		t.Errorf("%d tensors have objects of their own, want the long one", own)
	}
	stored := b.total(t, cas.Chunk)
	next := bytes.Clone(src)
	copy(next[len(next)-400_000:], random(300, 3))
	b.file(t, next)
	if more := b.total(t, cas.Chunk).raw - stored.raw; more > int64(len(src))/2 {
		t.Errorf("%d bytes more for 300 that changed", more)
	}
}

// TestTooManyTensors: a file whose tensors no manifest holds is a blob, and nothing is packed for tensors
// before that is known.
func TestTooManyTensors(t *testing.T) {
	b := memBench(t)
	b.p.record = 30_000
	src := crowdOf(3000, 256, "weight", 1)
	res := b.file(t, src)
	if res.Manifest.Format != "blob" || len(res.Manifest.Tensors) != 0 {
		t.Errorf("%s, %d tensors", res.Manifest.Format, len(res.Manifest.Tensors))
	}
	if got := b.total(t, cas.Chunk); got.raw > int64(len(src)) || got.count > 20 {
		t.Errorf("%d chunks of %d bytes for a file of %d", got.count, got.raw, len(src))
	}
	l := &formats.Layout{Regions: res.Manifest.Regions, Tensors: res.Manifest.Tensors}
	if !b.p.Keeps(l) {
		t.Error("a blob is not kept")
	}
}

// TestManyShort: very many short tensors take no object each, though a manifest would hold their digests.
func TestManyShort(t *testing.T) {
	b := memBench(t)
	src := crowdOf(maxShort+1, 4, "w", 1)
	m := b.file(t, src).Manifest
	if len(m.Tensors) != maxShort+2 || len(m.Objects) > 100 {
		t.Errorf("%d tensors in %d objects", len(m.Tensors), len(m.Objects))
	}
}

// TestMemoryOfManyTensors counts what packing a file of very many tensors allocates, garbage and all: a bound
// for each tensor, and one for a file whose header may not be read, whatever it has.
func TestMemoryOfManyTensors(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of thousands of tensors")
	}
	for _, c := range []struct {
		tensors int
		layout  int64
		format  string
		most    uint64
	}{
		{300_000, 0, "safetensors", 300_000 * 600},
		{1_000_000, 20 << 20, "blob", 4 << 20},
	} {
		b := memBench(t)
		b.p = New(b.st, Options{LayoutBytes: c.layout})
		src := crowdOf(c.tensors, 4, "w", 1)
		b.file(t, src) // then pools have what they keep, and the store all chunks
		batch := b.st.Begin()
		defer batch.Release()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		res, err := b.p.File(t.Context(), batch, bytes.NewReader(src), int64(len(src)))
		if err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		took := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s of %d tensors: %d KiB", res.Manifest.Format, c.tensors, took>>10)
		if res.Manifest.Format != c.format || took > c.most {
			t.Errorf("%s of %d tensors: %d KiB allocated, want at most %d", res.Manifest.Format, c.tensors,
				took>>10, c.most>>10)
		}
	}
}
