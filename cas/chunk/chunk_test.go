package chunk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	"github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc"

	"ckptfs/cas"
	"ckptfs/cas/golden"
)

// noise is the same for ever: ChaCha8 is specified.
func noise(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{'c', 'd', 'c'}).Read(p)
	return p
}

func cut(t *testing.T, c *CDC) (chunks [][]byte) {
	t.Helper()
	defer c.Close()
	for {
		p, err := c.Next()
		if err == io.EOF {
			if _, err := c.Next(); err != io.EOF {
				t.Errorf("after the end: %v", err)
			}
			return chunks
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(p) == 0 || len(p) > MaxLen {
			t.Fatalf("chunk of %d bytes", len(p))
		}
		chunks = append(chunks, bytes.Clone(p))
	}
}

// A change of these cuts orphans everything stored.
func TestGoldenCuts(t *testing.T) {
	in := noise(4 << 20)
	// Runs and text as well: most cuts there are at the maximum.
	clear(in[1<<20 : 1<<20+700<<10])
	for i := 2 << 20; i < 2<<20+300<<10; i++ {
		in[i] = "training_step, loss, "[i%21]
	}
	var b strings.Builder
	fmt.Fprintln(&b, "# offset length hash: FastCDC over 4 MiB, see chunk_test.go")
	off := 0
	for _, p := range cut(t, NewCDC(bytes.NewReader(in))) {
		fmt.Fprintf(&b, "%7d %6d %s\n", off, len(p), cas.Sum(p).Short())
		off += len(p)
	}
	fmt.Fprintln(&b, "# finely, the first 512 KiB; '|' where a list ends")
	off = 0
	for _, p := range cut(t, NewFineCDC(bytes.NewReader(in[:512<<10]))) {
		end := map[bool]string{true: " |"}[EndsList(p)]
		fmt.Fprintf(&b, "%7d %6d %s%s\n", off, len(p), cas.Sum(p).Short(), end)
		off += len(p)
	}
	golden.Same(t, "cuts.golden", b.String())
}

func TestCutsAreTheInput(t *testing.T) {
	in := noise(1 << 20)
	for _, n := range []int{0, 1, 63, MinCDC - 1, MinCDC, MinCDC + 1, NormalCDC, MaxLen - 1, MaxLen,
		MaxLen + 1, 2 * MaxLen, len(in)} {
		for name, cutter := range map[string]func(io.Reader) *CDC{"cdc": NewCDC, "fine": NewFineCDC} {
			whole := cut(t, cutter(bytes.NewReader(in[:n])))
			if !bytes.Equal(bytes.Join(whole, nil), in[:n]) {
				t.Errorf("%s of %d bytes: chunks are not the input", name, n)
			}
			// However the reader deals its bytes out, and whether EOF comes with the last of them or after.
			for _, r := range []io.Reader{
				iotest.HalfReader(bytes.NewReader(in[:n])),
				iotest.DataErrReader(bytes.NewReader(in[:n])),
			} {
				again := cut(t, cutter(r))
				if len(again) != len(whole) {
					t.Errorf("%s of %d bytes: %d chunks, then %d", name, n, len(whole), len(again))
					continue
				}
				for i := range again {
					if !bytes.Equal(again[i], whole[i]) {
						t.Errorf("%s of %d bytes: chunk %d differs", name, n, i)
					}
				}
			}
		}
	}
}

func TestReadErrorIsPassedOn(t *testing.T) {
	boom := errors.New("boom")
	for name, cutter := range map[string]func(io.Reader) *CDC{"cdc": NewCDC, "fine": NewFineCDC} {
		c := cutter(io.MultiReader(bytes.NewReader(noise(MinCDC/2)), iotest.ErrReader(boom)))
		if p, err := c.Next(); !errors.Is(err, boom) {
			t.Errorf("%s: %d bytes, %v", name, len(p), err)
		}
		c.Close()
		c.Close()
	}
}

// The gear table is the library's.
func TestGearIsTheLibrarys(t *testing.T) {
	if gear != fastcdc.G {
		t.Error("the gear table is another one")
	}
}

// The cuts are the library's, and Ends knows each, and no other place at which none is due.
func TestCutsAreTheLibrarys(t *testing.T) {
	in := noise(2 << 20)
	for i := 1 << 20; i < 3<<19; i++ { // text has longer chunks
		in[i] = in[i]%10 + '0'
	}
	for _, r := range []*rule{&coarse, &fine} {
		opts := &chunkers.ChunkerOpts{MinSize: r.shortest, NormalSize: r.normal, MaxSize: r.longest}
		for _, n := range []int{0, 1, r.shortest, r.shortest + 1, r.normal, r.normal + 1, r.longest,
			r.longest + 1, len(in)} {
			lib, err := chunkers.NewChunker("fastcdc-v1.0.0", bytes.NewReader(in[:n]), opts)
			if err != nil {
				t.Fatal(err)
			}
			for rest := in[:n]; len(rest) > 0; {
				want, err := lib.Next()
				if err != nil && err != io.EOF {
					t.Fatal(err)
				}
				if got := r.cut(rest); got != len(want) {
					t.Fatalf("%d bytes: a chunk of %d at %d, the library's is %d", n, got, n-len(rest),
						len(want))
				}
				for k := max(1, len(want)-200); k <= len(want); k++ {
					if r.ends(rest, k) != (k == len(want)) {
						t.Fatalf("%d bytes: a chunk of %d at %d, ends at %d: %v", n, len(want), n-len(rest),
							k, r.ends(rest, k))
					}
				}
				rest = rest[len(want):]
			}
		}
	}
}

// What content-defined cutting is for: after an insertion the cuts fall where they fell.
func TestCDCRealigns(t *testing.T) {
	in := noise(4 << 20)
	have := map[cas.Hash]bool{}
	for _, p := range cut(t, NewCDC(bytes.NewReader(in))) {
		have[cas.Sum(p)] = true
	}
	shifted := append([]byte("inserted"), in...)
	var fresh int
	for _, p := range cut(t, NewCDC(bytes.NewReader(shifted))) {
		if !have[cas.Sum(p)] {
			fresh += len(p)
		}
	}
	if fresh > 2*MaxLen {
		t.Errorf("%d bytes are new after an insertion of 8", fresh)
	}
}

func TestGridSpan(t *testing.T) {
	for _, n := range []int64{0, 1, cas.ChunkSize - 1, cas.ChunkSize, cas.ChunkSize + 1,
		10*cas.ChunkSize + 7} {
		var next int64
		for i := range GridLen(n) {
			off, length := GridSpan(n, i)
			if off != next || length < 1 || length > cas.ChunkSize {
				t.Errorf("%d bytes, chunk %d: %d+%d", n, i, off, length)
			}
			next = off + int64(length)
		}
		if next != n {
			t.Errorf("%d bytes: chunks end at %d", n, next)
		}
	}
}

func BenchmarkCDC(b *testing.B) {
	in := noise(16 << 20)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		c := NewCDC(bytes.NewReader(in))
		for {
			if _, err := c.Next(); err != nil {
				break
			}
		}
		c.Close()
	}
}
