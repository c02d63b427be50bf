package quant

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codectest"
)

// all are the quantisers of all formats and variants, those whose scales lie apart by rows, by parts of them
// and without scales.
func all() (qs []Quantiser) {
	for f := range Format(formats) {
		for v := range uint8(f.Variants()) {
			q := Quantiser{Format: f, Variant: v}
			if f.Apart() && !f.FP8() {
				q.Scales.Rule = Rule{Over, 7.5, 300}
			}
			switch f {
			case ScalesOf:
				qs = append(qs, scaleTensors(q)...)
				continue
			case AWQ:
				q.Scales = Scales{Type: Type(v), Rows: 10_000, Cols: 96, Tall: 64, Wide: 1,
					At: 96*130 + 8*int(v)}
				qs = append(qs, q)
				continue
			}
			qs = append(qs, q)
			if !f.Apart() {
				continue
			}
			for i, s := range []Scales{
				{Rows: 1000, Cols: 100, Tall: 1, Wide: 100, At: 12_345},
				{Rows: 1000, Cols: 100, Tall: 1000, Wide: 100, At: 7},
				{Rows: 1000, Cols: 100, Tall: 13, Wide: 17, At: 99},
				{Rows: 1000, Cols: 100, Tall: 1000, Wide: 1, At: 1},
				{Rows: 3, Cols: 50_000, Tall: 2, Wide: 70, At: 25_100},
			} {
				s.Type, s.Rule = Type(i%3), q.Scales.Rule
				if f == NVFP4 {
					s.Type, s.Rule.Kind = E4M3, Global+RuleKind(i%3)
				} else if f == MXFP4Pairs {
					s.Type, s.Rule.Kind = E8M0, Power
				}
				q.Scales = s
				qs = append(qs, q)
			}
		}
	}
	return qs
}

// scaleTensors are q by all rules.
func scaleTensors(q Quantiser) (qs []Quantiser) {
	for kind, typ := range []Type{F32, E4M3, E4M3, E4M3, E8M0, BF16, BF16, F16, E4M3} {
		q.Scales = Scales{Type: typ, Rows: 10_000, Cols: 16, Tall: 1, Wide: 16, At: 160}
		q.Scales.Rule = Rule{0, 6, 2688}
		if kind < ruleKinds {
			q.Scales.Rule.Kind = RuleKind(kind)
		}
		qs = append(qs, q)
	}
	return qs
}

// scaled gives q scales for n elements.
func (q *Quantiser) scaled(n int, bits func() uint32) {
	q.Scales.Values, q.Aside = nil, nil
	switch {
	case !q.Format.Apart() || q.Format == ScalesOf:
		return
	case q.Format == AWQ:
		if n == 0 || q.Scales.Tall == 0 || q.Scales.check(n) != nil {
			return
		}
		_, count, scales, zeros := q.Scales.AsideOf(n)
		for range min(count*(scales+zeros), 1<<20) {
			q.Aside = append(q.Aside, byte(bits()))
		}
		return
	}
	for range q.Scales.Groups(n) {
		v := bits()
		switch q.Scales.Type.size() {
		case 1:
			v &= 0xff
		case 2:
			v &= 0xffff
		}
		q.Scales.Values = append(q.Scales.Values, q.Scales.Type.value(v))
	}
}

// hostile are numbers as no layer has them: of any bits, with none and infinities among them, at the ends of
// what there is, zeros of both signs, and all alike.
func hostile(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	kind := r.IntN(8)
	for i := range x {
		if i%256 == 0 {
			kind = r.IntN(8)
		}
		switch kind {
		case 0:
			x[i] = math.Float32frombits(r.Uint32())
		case 1:
			x[i] = float32(r.NormFloat64() * 0.02)
		case 2:
			x[i] = math.Float32frombits(r.Uint32() & 0x807fffff) // subnormal
		case 3:
			x[i] = math.Float32frombits(r.Uint32() & 0x80000000)
		case 4:
			x[i] = math.MaxFloat32 * float32(1-2*r.IntN(2))
		case 5:
			x[i] = 0.25
		case 6:
			x[i] = float32(r.IntN(7)-3) / 4
		case 7:
			if x[i] = float32(r.NormFloat64()); r.IntN(40) == 0 {
				x[i] = []float32{nan, inf, -inf, 0}[r.IntN(4)]
			}
		}
	}
	return x
}

// TestHostile: any blocks come back, whatever x is.
func TestHostile(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	times := 30
	if testing.Short() {
		times = 4
	}
	for _, q := range all() {
		elems, size := q.Block()
		for round := range times {
			n := elems * r.IntN(2*Slab/elems+20)
			if round == 0 {
				n = 0
			}
			x := hostile(r, n)
			blocks := make([]byte, n/elems*size)
			q.scaled(n, r.Uint32)
			switch r.IntN(3) {
			case 0: // any bytes
				for i := range blocks {
					blocks[i] = byte(r.Uint32())
				}
			case 1: // what follows from x, but for a few bytes
				var err error
				if blocks, err = q.Restore(blocks[:0], new(Streams), x); err != nil {
					t.Fatal(err)
				}
				for range r.IntN(4) {
					if n > 0 {
						blocks[r.IntN(len(blocks))] ^= 1 << r.IntN(8)
					}
				}
			}
			var s Streams
			if err := q.Differ(&s, blocks, x); err != nil {
				t.Fatal(err)
			}
			restores(t, &q, &s, blocks, x)
		}
	}
}

// TestStreamsDoNotFit: streams that are too short or too long, and numbers out of bounds, are corrupt.
func TestStreamsDoNotFit(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, q := range all() {
		elems, size := q.Block()
		n := elems * (512 / elems)
		x := hostile(r, n)
		blocks := make([]byte, n/elems*size)
		for i := range blocks {
			blocks[i] = byte(r.Uint32())
		}
		q.scaled(n, r.Uint32)
		var s Streams
		if err := q.Differ(&s, blocks, x); err != nil {
			t.Fatal(err)
		}
		for i, p := range s {
			if len(p) < 2 {
				continue // none are zeros, as many as are asked for
			}
			for _, other := range [][]byte{append(p[:len(p):len(p)], 1), p[:len(p)-1]} {
				broken := s
				broken[i] = other
				if got, err := q.Restore(nil, &broken, x); !errors.Is(err, cas.ErrCorrupt) || len(got) > 0 {
					t.Errorf("%v: stream %d of %d bytes, %d fit: %v", q, i, len(other), len(p), err)
				}
			}
		}
	}
	q := Quantiser{Format: Q4_K}
	scales := []byte{7: 64} // of six bits
	_, err := q.Restore(nil, &Streams{scaleStream: scales}, make([]float32, 256))
	if !errors.Is(err, cas.ErrCorrupt) {
		t.Error(err)
	}
}

func TestChecks(t *testing.T) {
	x := make([]float32, 64)
	ruled := func(f Format, t Type, r Rule) Quantiser {
		return Quantiser{Format: f, Scales: Scales{Type: t, Rows: 8, Cols: 8, Tall: 1, Wide: 8, Rule: r}}
	}
	scaled := func(s Scales) Quantiser { return Quantiser{Format: F8E4M3, Scales: s} }
	for _, c := range []struct {
		q    Quantiser
		n    int
		want error
	}{
		{Quantiser{}, 32, cas.ErrNewer},
		{Quantiser{Format: formats}, 32, cas.ErrNewer},
		{Quantiser{Format: 255}, 32, cas.ErrNewer},
		{Quantiser{Format: Q4_K, Variant: 1}, 0, cas.ErrNewer},
		{Quantiser{Format: Q8_0, Variant: 3}, 32, cas.ErrNewer},
		{Quantiser{Format: F8E4M3, Variant: 5}, 32, cas.ErrNewer},
		{scaled(Scales{Type: E4M3}), 32, cas.ErrNewer},
		{scaled(Scales{Type: types}), 32, cas.ErrNewer},
		{ruled(Int4, F32, Rule{Over, 1, 1}), 32, nil},
		{ruled(Int4, F32, Rule{Over, 1, 1}), 33, cas.ErrCorrupt},
		{ruled(Int4, F32, Rule{Over, 0, 1}), 32, cas.ErrCorrupt},
		{ruled(Int4, F32, Rule{Over, nan, 1}), 32, cas.ErrCorrupt},
		{ruled(Int4, F32, Rule{Over, 1, inf}), 32, cas.ErrCorrupt},
		{ruled(Int4, F32, Rule{Over, 1, -1}), 32, cas.ErrCorrupt},
		{ruled(Int4, F32, Rule{Power, 1, 1}), 32, cas.ErrCorrupt},
		{ruled(Int4, E8M0, Rule{Over, 1, 1}), 32, cas.ErrCorrupt},
		{ruled(Int4, E8M0, Rule{ruleKinds, 1, 1}), 32, cas.ErrNewer},
		{ruled(ScalesOf, F32, Rule{Over, 1, 1}), 32, nil},
		{ruled(ScalesOf, F32, Rule{Over, 1, 1}), 12, cas.ErrCorrupt},
		{Quantiser{Format: ScalesOf, Scales: Scales{Rule: Rule{Over, 1, 1}}}, 32, cas.ErrCorrupt},
		{Quantiser{Format: Q8_0}, 33, cas.ErrCorrupt},
		{Quantiser{Format: Q4_K}, 32, cas.ErrCorrupt},
		{scaled(Scales{Tall: 1}), 32, cas.ErrCorrupt},
		{scaled(Scales{Rows: 1 << 40, Cols: 1 << 40, Tall: 1, Wide: 1}), 32, cas.ErrCorrupt},
		{scaled(Scales{Rows: 4, Cols: 8, Tall: 1, Wide: 8, At: 1}), 32, cas.ErrCorrupt},
		{scaled(Scales{Rows: 4, Cols: 8, Tall: 1, Wide: 8, At: -1}), 32, cas.ErrCorrupt},
		{scaled(Scales{Rows: 4, Cols: 8, Tall: 1, Wide: 8}), 32, nil},
		{scaled(Scales{Rows: 1 << 30, Cols: 1 << 30, Tall: 1, Wide: 1 << 30}), 32, nil},
		{scaled(Scales{Rows: 1 << 30, Cols: 1 << 30, Tall: 1 << 30, Wide: 1,
			At: 1<<60 - 64}), 64, nil},
	} {
		if _, err := c.q.Restore(nil, new(Streams), x[:c.n]); !errors.Is(err, c.want) {
			t.Errorf("%v of %d: %v, want %v", c.q, c.n, err, c.want)
		}
	}
}

// TestGroups: groups and runs of elements are those that dividing their places says.
func TestGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 20_000 {
		g := Scales{Rows: 1 + r.IntN(9), Cols: 1 + r.IntN(9), Tall: 1 + r.IntN(10), Wide: 1 + r.IntN(10)}
		g.At = r.IntN(g.Rows * g.Cols)
		n := r.IntN(g.Rows*g.Cols - g.At + 1)
		if err := g.check(n); err != nil {
			t.Fatal(err)
		}
		groups := g.Groups(n)
		if len(groups) != g.count(n) {
			t.Fatalf("%+v: %d elements touch %v, count %d", g, n, groups, g.count(n))
		}
		for i := range groups {
			if i > 0 && groups[i] <= groups[i-1] {
				t.Fatalf("%+v: %v", g, groups)
			}
		}
		used := make([]bool, len(groups))
		next := 0
		g.runs(n, func(from, to, group int) {
			if from != next || to <= from {
				t.Fatalf("%+v: a run from %d to %d after %d", g, from, to, next)
			}
			next = to
			used[group] = true
			for i := from; i < to; i++ {
				row, col := (g.At+i)/g.Cols, (g.At+i)%g.Cols
				if want := row/g.Tall*((g.Cols+g.Wide-1)/g.Wide) + col/g.Wide; groups[group] != want {
					t.Fatalf("%+v: element %d is of group %d, want %d", g, i, groups[group], want)
				}
			}
		})
		if next != n {
			t.Fatalf("%+v: runs of %d of %d elements", g, next, n)
		}
		for i, ok := range used {
			if !ok {
				t.Fatalf("%+v: no element of %d is of group %d", g, n, groups[i])
			}
		}
	}
}

// TestFMA: the sum is what rounding once gives.
func TestFMA(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 300_000 {
		x := math.Float32frombits(r.Uint32())
		a, c := float32(r.NormFloat64()), []float32{0.5, 8.5, 16.5, float32(r.NormFloat64()), 0}[r.IntN(5)]
		switch r.IntN(3) {
		case 0:
			x = float32(r.NormFloat64())
		case 1: // halfway between two numbers, and next to that
			a = float32(1 + r.IntN(1<<12))
			x = (float32(int(1)<<r.IntN(24)) + 0.5) / a * float32(1-2*r.IntN(2))
		}
		if x != x || float64(x) > 1e30 || float64(x) < -1e30 {
			continue
		}
		exact := new(big.Float).SetPrec(400).SetFloat64(float64(x))
		exact.Mul(exact, new(big.Float).SetPrec(400).SetFloat64(float64(a)))
		exact.Add(exact, new(big.Float).SetPrec(400).SetFloat64(float64(c)))
		want, _ := exact.Float32()
		if got := fma(x, a, c); got != want {
			t.Fatalf("%v * %v + %v = %v, want %v", x, a, c, got, want)
		}
	}
	if v := fma(inf, 1, 2); v != inf {
		t.Error(v)
	}
	if v := fma(nan, 1, 2); v == v {
		t.Error(v)
	}
}

// TestRound8: every number of FP8, what lies halfway, and their neighbours.
func TestRound8(t *testing.T) {
	for _, f := range []Format{F8E4M3, F8E5M2} {
		last := byte(0x7e)
		if f == F8E5M2 {
			last = 0x7b
		}
		if f.value8(last) != f.greatest() {
			t.Fatalf("%v: the greatest is %v", f, f.value8(last))
		}
		for c := range last {
			a, b := f.value8(c), f.value8(c+1)
			half := (a + b) / 2
			even := c + c&1
			for _, s := range []struct {
				v    float32
				want byte
			}{{a, c}, {b, c + 1}, {half, even}, {math.Nextafter32(half, 0), c},
				{math.Nextafter32(half, inf), c + 1}, {math.Nextafter32(b, 0), c + 1},
				{math.Nextafter32(a, inf), c}} {
				if got := f.round8(s.v); got != s.want {
					t.Fatalf("%v: %v is %#x, want %#x", f, s.v, got, s.want)
				}
				if got := f.round8(-s.v); got != s.want|0x80 {
					t.Fatalf("%v: %v is %#x, want %#x", f, -s.v, got, s.want|0x80)
				}
			}
		}
		for v, want := range map[float32]byte{inf: last, -inf: last | 0x80, math.MaxFloat32: last, 1e-30: 0,
			-1e-40: 0x80} {
			if got := f.round8(v); got != want {
				t.Errorf("%v: %v is %#x, want %#x", f, v, got, want)
			}
		}
		if f.round8(nan) != 0 {
			t.Error("what is no number is not 0")
		}
	}
}

// TestTables: the codes of MXFP4 and IQ4 are those of the nearest numbers, as ggml finds them.
func TestTables(t *testing.T) {
	var all []float32
	for _, x := range append(table[:], twiceE2M1[:]...) {
		for _, y := range append(table[:], twiceE2M1[:]...) {
			v := (x + y) / 2
			for _, v := range []float32{v, math.Nextafter32(v, inf), math.Nextafter32(v, -inf)} {
				all = append(all, v, -v)
			}
		}
	}
	r := rand.New(rand.NewPCG(27, 28))
	for range 300_000 {
		all = append(all, float32(r.NormFloat64()*40), math.Float32frombits(r.Uint32()))
	}
	for _, v := range append(all, inf, -inf, math.Float32frombits(1<<31)) {
		if v != v {
			continue
		}
		code := 0
		switch {
		case v >= table[15]:
			code = 15
		case v > table[0]:
			for table[code+1] <= v {
				code++
			}
			if !(v-table[code] < table[code+1]-v) {
				code++
			}
		}
		if got := tableCode(v); got != byte(code) {
			t.Fatalf("IQ4: %v is %d, want %d", v, got, code)
		}
		best := 0
		for i := range 16 {
			if math.Abs(e2m1Value(i)-float64(v)) < math.Abs(e2m1Value(best)-float64(v)) {
				best = i
			}
		}
		if v > math.MaxFloat32 {
			best = 7
		} else if v < -math.MaxFloat32 {
			best = 15
		}
		if got := e2m1(v); got != byte(best) && float64(v)-e2m1Value(best) != float64(v)-e2m1Value(int(got)) {
			t.Fatalf("MXFP4: %v is %d, want %d", v, got, best)
		}
	}
	if tableCode(nan) != 0 || e2m1(nan) != 0 {
		t.Error("what is no number is not 0")
	}
}

func e2m1Value(code int) float64 { return float64(twiceE2M1[code&7]) * float64(1-code>>3*2) }

// TestPack: codes and scales of any block come out of it and go into it as they are.
func TestPack(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for f := range Format(formats) {
		if !f.Known() || f.Apart() {
			continue
		}
		s := shapes[f]
		for range 300 {
			p, again := make([]byte, s.bytes), make([]byte, s.bytes)
			for i := range p {
				p[i], again[i] = byte(r.Uint32()), byte(r.Uint32())
			}
			codes := make([]byte, s.elems)
			f.unpack(codes, p)
			for _, c := range codes {
				if c>>s.bits != 0 {
					t.Fatalf("%v: code %#x", f, c)
				}
			}
			f.pack(again, codes)
			q := Quantiser{Format: f}
			var sc, mn [16]byte
			q.split(p, &sc, &mn)
			q.join(again, &sc, &mn)
			if f == MXFP4 {
				again[0] = p[0]
			} else {
				q.put16(again, 0, q.get16(p, 0))
				if f == Q4_1 || f == Q5_1 || f == Q2_K || f == Q4_K || f == Q5_K {
					q.put16(again, 1, q.get16(p, 1))
				}
			}
			if string(again) != string(p) {
				t.Fatalf("%v: % x becomes % x", f, p, again)
			}
		}
	}
}

// FuzzRestore: no streams do harm, all levels make the same of them, and what comes of them comes of what
// Differ makes of it.
func FuzzRestore(f *testing.F) {
	for _, q := range all() {
		f.Add(uint8(q.Format), q.Variant, uint8(q.Scales.Type), uint32(q.Scales.Cols), uint32(q.Scales.Tall),
			uint32(q.Scales.Wide), uint64(q.Scales.At), uint8(q.Scales.Rule.Kind), q.Scales.Rule.Levels,
			q.Scales.Rule.Global, []byte{1, 2, 3, 0, 9}, make([]byte, 1024))
	}
	f.Fuzz(func(t *testing.T, format, variant, typ uint8, cols, tall, wide uint32, at uint64,
		rule uint8, levels, global float32, streams, numbers []byte) {
		q := Quantiser{Format: Format(format), Variant: variant}
		q.Scales = Scales{Type: Type(typ), Rows: 1 << 20, Cols: int(cols), Tall: int(tall), Wide: int(wide),
			At: int(at), Rule: Rule{RuleKind(rule), levels, global}}
		x := make([]float32, min(len(numbers)/4, 4*Slab))
		for i := range x {
			x[i] = math.Float32frombits(le.Uint32(numbers[4*i:]))
		}
		var s Streams
		for i := 0; len(streams) > 1; i++ { // a length, then as many bytes
			n := min(int(streams[0]), len(streams)-1)
			s[i%len(s)] = append(s[i%len(s)], streams[1:1+n]...)
			streams = streams[1+n:]
		}
		q.scaled(len(x), func() uint32 { return math.Float32bits(float32(len(x))) })
		var blocks []byte
		var err error
		var all [][]byte
		codectest.Levels(func(string) {
			blocks, err = q.Restore(nil, &s, x)
			all = append(all, append(blocks, fmt.Sprint(err)...))
		})
		if !codectest.Same(all) {
			t.Fatalf("%v, variant %d: the levels differ", q.Format, q.Variant)
		}
		if err != nil {
			if !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		var again Streams
		if err := q.Differ(&again, blocks, x); err != nil {
			t.Fatal(err)
		}
		restores(t, &q, &again, blocks, x)
	})
}
