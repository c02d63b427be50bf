package anchor

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/half"
	"ckptfs/cas/quant"
)

// matrix is numbers with rows of cols.
type matrix struct {
	x    []float32
	cols int
}

func (m matrix) rows() int           { return len(m.x) / m.cols }
func (m matrix) row(r int) []float32 { return m.x[r*m.cols:][:m.cols] }
func (m matrix) pick(r []int) matrix { return m.each(r, 0, m.cols) }
func (m matrix) columns(a, b int) matrix {
	all := make([]int, m.rows())
	for i := range all {
		all[i] = i
	}
	return m.each(all, a, b)
}

func (m matrix) each(rows []int, a, b int) (to matrix) {
	to.cols = b - a
	for _, r := range rows {
		to.x = append(to.x, m.row(r)[a:b]...)
	}
	return to
}

func numbers(rng *rand.Rand, rows, cols int) matrix {
	m := matrix{make([]float32, rows*cols), cols}
	for i := range m.x {
		m.x[i] = half.FromBF16(half.ToBF16(math.Float32bits(float32(rng.NormFloat64() * 0.02))))
	}
	return m
}

// as are the bytes of x in a type.
func as(t testing.TB, dtype string, x []float32) (p []byte) {
	for _, v := range x {
		switch dtype {
		case "F32":
			p = binary.LittleEndian.AppendUint32(p, math.Float32bits(v))
		case "BF16":
			p = binary.LittleEndian.AppendUint16(p, half.ToBF16(math.Float32bits(v)))
		case "F16":
			p = binary.LittleEndian.AppendUint16(p, half.ToF16(math.Float32bits(v)))
		}
	}
	if f, ok := quant.ByName(dtype); ok {
		q := quant.Quantiser{Format: f}
		if f.FP8() {
			q.Scales = quant.Scales{Rows: 1, Cols: len(x), Tall: 1, Wide: len(x)}
		}
		var s quant.Streams
		var err error
		if p, err = q.Restore(nil, &s, x); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

const chunk = 256 << 10

// sketched adds the chunks of p in any order, from several workers.
func sketched(s *Sketch, p []byte) *Sketch {
	var all sync.WaitGroup
	for _, k := range rand.Perm((len(p) + chunk - 1) / chunk) {
		all.Go(func() { s.Add(p[k*chunk:min((k+1)*chunk, len(p))], int64(k)*chunk) })
	}
	all.Wait()
	return s
}

func mustNumbers(t testing.TB, dtype string) Numbers {
	n, ok := NumbersOf(dtype)
	if !ok {
		t.Fatal(dtype)
	}
	return n
}

// known are the bases by their anchors.
type known map[Key][]int

func (k known) add(t testing.TB, i int, dtype string, m matrix) {
	s := sketched(New(mustNumbers(t, dtype), int64(len(m.x)), int64(m.cols)), as(t, dtype, m.x))
	for kind := range Kind(kinds) {
		for _, key := range s.Keys(kind) {
			k[key] = append(k[key], i)
		}
	}
}

// of are the bases of which two anchors are a target's.
func (k known) of(t testing.TB, dtype string, m matrix, windows int) (found []int) {
	s := sketched(NewTarget(mustNumbers(t, dtype), int64(len(m.x)), int64(m.cols), windows, 128),
		as(t, dtype, m.x))
	hits := map[int]int{}
	for kind := range Kind(kinds) {
		for _, key := range s.Keys(kind) {
			for _, i := range k[key] {
				hits[i]++
			}
		}
	}
	for i, n := range hits {
		if n >= 2 {
			found = append(found, i)
		}
	}
	slices.Sort(found)
	return found
}

func upTo(n int, f func(i int) int) (all []int) {
	for i := range n {
		all = append(all, f(i))
	}
	return all
}

// TestFound: what was made of a tensor finds it, and nothing else does.
func TestFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const head = 64
	shapes := [][2]int{{512, 512}, {512, 512}, {512, 512}, {1024, 512}, {512, 1024}, {256, 1024}, {2048, 768},
		{768, 2048}, {640, 384}, {512, 512}}
	var bases []matrix
	k := known{}
	for i, s := range shapes {
		bases = append(bases, numbers(rng, s[0], s[1]))
		k.add(t, i, "BF16", bases[i])
	}
	check := func(what, dtype string, m matrix, windows int, want ...int) {
		t.Helper()
		if got := k.of(t, dtype, m, windows); !slices.Equal(got, want) {
			t.Errorf("%s: found %d, want %d", what, got, want)
		}
	}
	for i, b := range bases {
		rows := b.rows()
		check("the same", "BF16", b, 1024, i)
		check("binary16", "F16", b, 1024, i)
		check("single precision", "F32", b, 1024, i)
		for _, ranks := range []int{2, 8} {
			n := rows / ranks
			check(fmt.Sprint("rows, of ", ranks), "BF16",
				b.pick(upTo(n, func(r int) int { return rows - n + r })), 1024, i)
			check(fmt.Sprint("columns, of ", ranks), "BF16", b.columns(b.cols-b.cols/ranks, b.cols), 1024, i)
		}
		rope := b.pick(upTo(rows, func(r int) int { return r/head*head + r%2*head/2 + r%head/2 }))
		check("interleaved", "BF16", rope, 1024, i)
		for _, f := range []string{"Q8_0", "Q6_K", "Q5_K", "Q4_K"} {
			if b.cols%256 == 0 {
				check(f, f, rope, 0, i)
			}
		}
		if b.cols%256 == 0 {
			check("FP8", "F8_E4M3", b, 0, i)
		}
		check("unrelated", "BF16", numbers(rng, rows, b.cols), 1024)
		tuned := matrix{slices.Clone(b.x), b.cols}
		for i := range tuned.x {
			tuned.x[i] += float32(rng.NormFloat64() * 0.02 * 1e-3)
		}
		check("changed a little", "BF16", tuned, 1024, i)
	}
	fused := matrix{slices.Concat(bases[0].x, bases[1].x, bases[2].x), 512}
	check("joined", "BF16", fused, 1024, 0, 1, 2)
	byHead := fused.pick(upTo(fused.rows(), func(r int) int {
		h, of := r/(3*head), r/head%3
		return of*512 + h*head + r%head
	}))
	check("joined by head", "BF16", byHead, 1024, 0, 1, 2)
	check("joined by head, Q4_K", "Q4_K", byHead, 0, 0, 1, 2)
	var flat []float32
	for _, b := range bases {
		flat = append(flat, b.x...)
	}
	half := len(flat)/2 + 3
	check("flat, first part", "F32", matrix{flat[:half], 0}, 16384, 0, 1, 2, 3, 4, 5, 6)
	check("flat, second part", "F32", matrix{flat[half:], 0}, 16384, 6, 7, 8, 9)
}

var quantised = []string{"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q2_K",
	"IQ4_NL", "IQ4_XS", "MXFP4", "F8_E4M3", "F8_E5M2"}

// TestFormats: the greatest numbers of blocks are where those are that they were made from.
func TestFormats(t *testing.T) {
	b := numbers(rand.New(rand.NewPCG(3, 4)), 256, 4096)
	k := known{}
	k.add(t, 0, "F32", b)
	for _, f := range quantised {
		if got := k.of(t, f, b, 0); len(got) != 1 {
			t.Errorf("%s is not found", f)
		}
		format, _ := quant.ByName(f)
		x := b.x[:1024]
		y := make([]float32, len(x))
		dequantise(format, y, as(t, f, x))
		var dot, xx, yy float64
		for i := range x {
			dot, xx, yy = dot+float64(x[i]*y[i]), xx+float64(x[i]*x[i]), yy+float64(y[i]*y[i])
		}
		if c := dot / math.Sqrt(xx*yy); c < 0.9 {
			t.Errorf("%s: dequantised numbers correlate by %.3f", f, c)
		}
	}
}

// TestParts: however a tensor is taken apart, on the grid, it has the same anchors.
func TestParts(t *testing.T) {
	b := numbers(rand.New(rand.NewPCG(5, 6)), 1024, 512)
	p := as(t, "BF16", b.x)
	n := mustNumbers(t, "BF16")
	whole := New(n, 1024*512, 512)
	whole.Add(p, 0)
	parts := sketched(New(n, 1024*512, 512), p)
	for k := range Kind(kinds) {
		if !slices.Equal(whole.Keys(k), parts.Keys(k)) {
			t.Error("the parts have other anchors than the whole")
		}
	}
	if w, g := len(whole.Keys(Windows)), len(whole.Keys(Groups)); w != BaseWindows || g != BaseGroups {
		t.Errorf("%d and %d anchors", w, g)
	}
}

// TestAlike: what is alike everywhere has no anchors.
func TestAlike(t *testing.T) {
	for _, dtype := range []string{"BF16", "F16", "F32"} {
		x := make([]float32, 1<<16)
		for i := range x {
			x[i] = float32(i / 1000)
		}
		for _, x := range [][]float32{make([]float32, 1<<16), x} {
			s := NewTarget(mustNumbers(t, dtype), 1<<16, 1024, 1024, 128)
			s.Add(as(t, dtype, x), 0)
			if n := len(s.Keys(Windows)); n > 0 {
				t.Errorf("%s: %d anchors", dtype, n)
			}
		}
	}
}

// TestAsBF16: all numbers of binary16 are rounded as single precision is.
func TestAsBF16(t *testing.T) {
	n := mustNumbers(t, "F16")
	var all []byte
	for h := range 1 << 16 {
		all = binary.LittleEndian.AppendUint16(all, uint16(h))
	}
	for h := range 1 << 16 { // and not four that follow each other
		all = binary.LittleEndian.AppendUint16(all, uint16(h*40503))
	}
	all = all[:len(all)-2]
	got := n.AsBF16(make([]byte, len(all)), all)
	for i := 0; i < len(all); i += 2 {
		h := binary.LittleEndian.Uint16(all[i:])
		want := half.ToBF16(math.Float32bits(half.FromF16(h)))
		if is := binary.LittleEndian.Uint16(got[i:]); is != want {
			t.Fatalf("%#x: %#x, want %#x", h, is, want)
		}
	}
}

// TestGreatest: the greatest are those that one finds one by one, the first ones of equal ones.
func TestGreatest(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 2000 {
		n := rng.IntN(300)
		most := 1 + rng.IntN(1<<16)
		var p []byte
		var want three
		for i := range n {
			h := uint16(rng.IntN(most))
			p = binary.LittleEndian.AppendUint16(p, h)
			if m := uint32(h & 0x7fff); m > want[2].bits {
				want.put(m, i, uint32(h>>15))
			}
		}
		if got := greatestOf(p); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

// FuzzAdd: any bytes, cut in any way, of any type.
func FuzzAdd(f *testing.F) {
	f.Add([]byte("0123456789abcdef0123456789abcdef"), uint16(3), uint16(300), byte(4))
	types := append([]string{"F32", "BF16", "F16"}, quantised...)
	f.Fuzz(func(t *testing.T, p []byte, off, cols uint16, dtype byte) {
		p = slices.Repeat(p, 1+20000/(len(p)+1))
		n := mustNumbers(t, types[int(dtype)%len(types)])
		for _, s := range []*Sketch{New(n, int64(len(p)), int64(cols)),
			NewTarget(n, int64(off), int64(cols), 100, 10)} {
			s.Add(p, int64(off))
			if len(s.Keys(Windows)) > 100 || len(s.Keys(Groups)) > 16 {
				t.Fatal("too many anchors")
			}
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	x := numbers(rand.New(rand.NewPCG(7, 8)), 1024, 4096)
	for _, dtype := range []string{"BF16", "F16", "F32", "Q8_0", "Q4_K"} {
		p := as(b, dtype, x.x)
		n := mustNumbers(b, dtype)
		for _, c := range []struct {
			what string
			make func() *Sketch
		}{
			{"base", func() *Sketch { return New(n, 4<<20, 4096) }},
			{"target", func() *Sketch { return NewTarget(n, 4<<20, 4096, 1024, 128) }},
		} {
			b.Run(dtype+"/"+c.what, func(b *testing.B) {
				b.SetBytes(int64(len(p)))
				began := processorTime(b)
				for b.Loop() {
					s := c.make()
					for at := 0; at < len(p); at += chunk {
						s.Add(p[at:min(at+chunk, len(p))], int64(at))
					}
				}
				b.ReportMetric(float64(b.N*len(p))/float64(processorTime(b)-began), "GB/cpu-s")
			})
		}
	}
}

// processorTime is what this process took of processors.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
