package codec

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/cas/codectest"
	"ckptfs/cas/lowrank"
)

var lowRankHints = []Hint{{"BF16", 2}, {"F16", 2}, {"F32", 4}}

// chunksOf cuts a tensor into stretches of n bytes.
func chunksOf(raw, base []byte, w, n int) (s []lowrank.Stretch) {
	for at := 0; at < len(raw); at += n {
		end := min(at+n, len(raw))
		s = append(s, lowrank.Stretch{Raw: raw[at:end], Base: base[at:end], At: int64(at / w)})
	}
	return s
}

func TestLowRank(t *testing.T) {
	for _, h := range lowRankHints {
		for _, c := range []struct {
			rows, cols, r, chunk int
		}{{300, 200, 3, 1 << 14}, {400, 64, 8, 10000}, {128, 1000, 1, 1 << 15}} {
			ulps := 4.0
			if h.Elem == 4 {
				ulps = 1e5
			}
			raw, base := codectest.Merged(c.rows, c.cols, c.r, h.DType, ulps)
			all := chunksOf(raw, base, h.Elem, c.chunk/8*8)
			columns, ok := FactorColumns(all, c.cols, h)
			if !ok || len(columns) != (c.r+1)/2*2*c.cols*h.Elem {
				t.Fatalf("%v %+v: columns of %d bytes: %v", h, c, len(columns), ok)
			}
			var delta, low int
			for _, s := range all {
				d, _ := EncodeDelta(nil, s.Raw, s.Base, h, 2*len(s.Raw))
				delta += len(d)
				out, ok := EncodeLowRank([]byte("before"), s.Raw, s.Base, columns, c.cols, s.At, h,
					2*len(s.Raw))
				if !ok || !bytes.HasPrefix(out, []byte("before")) {
					t.Fatalf("%v %+v: not encoded", h, c)
				}
				low += len(out) - 6
				codectest.Levels(func(how string) {
					got, err := DecodeLowRank([]byte("x"), out[6:], s.Base, columns, len(s.Raw))
					if err != nil || !bytes.Equal(got[1:], s.Raw) {
						t.Fatalf("%v %+v %s: %v", h, c, how, err)
					}
				})
				if _, ok := EncodeLowRank(nil, s.Raw, s.Base, columns, c.cols, s.At, h, len(out)-7); ok {
					t.Errorf("%v %+v: took more than it may", h, c)
				}
			}
			if low > delta*4/5 {
				t.Errorf("%v %+v: %d bytes, as deltas %d", h, c, low, delta)
			}
		}
	}
}

// Whatever the numbers are, what is encoded comes back.
func TestAnyLowRankRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.SampledFrom(lowRankHints).Draw(t, "hint")
		cols := rapid.IntRange(lowrank.MinCols, 200).Draw(t, "cols")
		n := rapid.IntRange(minLen/h.Elem, 1500).Draw(t, "elements") * h.Elem
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		raw, base := bytes.Clone(codectest.Weights(n, h.Elem)), bytes.Clone(codectest.Weights(n, h.Elem))
		for range rapid.IntRange(0, 100).Draw(t, "odd") {
			raw[rng.IntN(n)], base[rng.IntN(n)] = 0xff, 0xff
		}
		r := 2 * rapid.IntRange(1, lowrank.MaxRank/2).Draw(t, "pairs")
		columns := make([]byte, r*cols*h.Elem)
		for i := range columns {
			columns[i] = byte(rng.Uint32())
		}
		at := int64(rapid.IntRange(0, 5*cols).Draw(t, "at"))
		var all [][]byte
		codectest.Levels(func(how string) {
			out, ok := EncodeLowRank(nil, raw, base, columns, cols, at, h, 10*n+1000)
			if !ok {
				t.Fatal(how, "not encoded")
			}
			all = append(all, out)
		})
		for _, out := range all {
			codectest.Levels(func(how string) {
				got, err := DecodeLowRank(nil, out, base, columns, n)
				if err != nil || !bytes.Equal(got, raw) {
					t.Fatal(how, err)
				}
			})
		}
	})
}

func TestLowRankRefuses(t *testing.T) {
	h := Hint{"BF16", 2}
	raw, base := codectest.Merged(64, 50, 2, h.DType, 4)
	all := chunksOf(raw, base, 2, len(raw))
	columns, _ := FactorColumns(all, 50, h)
	stored, ok := EncodeLowRank(nil, raw, base, columns, 50, 0, h, len(raw))
	if !ok {
		t.Fatal("not encoded")
	}
	size := int(le.Uint32(stored[11:]))
	with := func(at int, p ...byte) []byte {
		s := bytes.Clone(stored)
		copy(s[at:], p)
		return s
	}
	for name, c := range map[string]struct {
		stored, base, columns []byte
		n                     int
	}{
		"empty":          {nil, base, columns, len(raw)},
		"head":           {stored[:15], base, columns, len(raw)},
		"kind 0":         {with(0, 0), base, columns, len(raw)},
		"kind 4":         {with(0, 4), base, columns, len(raw)},
		"rank 0":         {with(1, 0), base, nil, len(raw)},
		"odd rank":       {with(1, 1), base, columns[:100], len(raw)},
		"rank 66":        {with(1, 66), base, make([]byte, 66*100), len(raw)},
		"few columns":    {with(3, 31), base, columns[:31*4], len(raw)},
		"most columns":   {with(3, 255, 255, 255, 255), base, columns, len(raw)},
		"column":         {with(7, 50), base, columns, len(raw)},
		"long rows":      {with(11, 255, 255, 255, 255), base, columns, len(raw)},
		"short rows":     {with(11, byte(size-1)), base, columns, len(raw)},
		"rows' codec":    {with(15, Delta), base, columns, len(raw)},
		"rows' newer":    {with(15, 200), base, columns, len(raw)},
		"no delta":       {with(16+size, 2), base, columns, len(raw)},
		"cut":            {stored[:len(stored)-1], base, columns, len(raw)},
		"nothing behind": {stored[:16+size], base, columns, len(raw)},
		"longer":         {append(with(0), 0), base, columns, len(raw)},
		"other base":     {stored, base[1:], columns, len(raw)},
		"other columns":  {stored, base, columns[1:], len(raw)},
		"no columns":     {stored, base, nil, len(raw)},
		"half":           {stored, base[1:], columns, len(raw) - 1},
		"none":           {stored, nil, columns, -2},
	} {
		if _, err := DecodeLowRank(nil, c.stored, c.base, c.columns, c.n); !errors.Is(err, cas.ErrCorrupt) &&
			!errors.Is(err, cas.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		raw, base, columns []byte
		cols               int
		at                 int64
		h                  Hint
	}{
		"integers":     {raw, base, columns, 50, 0, Hint{"I16", 2}},
		"other base":   {raw, base[2:], columns, 50, 0, h},
		"columns":      {raw, base, columns, 51, 0, h},
		"no columns":   {raw, base, nil, 50, 0, h},
		"none at all":  {raw, base, columns, 0, 0, h},
		"nowhere":      {raw, base, columns, 50, -1, h},
		"half numbers": {raw[1:], base[1:], columns, 50, 0, h},
		"nothing":      {nil, nil, columns, 50, 0, h},
	} {
		if out, ok := EncodeLowRank([]byte("x"), c.raw, c.base, c.columns, c.cols, c.at, c.h, 1<<20); ok ||
			len(out) != 1 {
			t.Errorf("%s: encoded", name)
		}
	}
}

// Factors of what is none, and of odd numbers, are refused or serve; nothing panics.
func TestFactorColumnsOdd(t *testing.T) {
	for _, h := range append(lowRankHints, Hint{"I16", 2}) {
		n := 1 << 16
		same := codectest.Weights(n, h.Elem)
		nans := bytes.Repeat([]byte{0xff}, n)
		for name, s := range map[string][]lowrank.Stretch{
			"none":     nil,
			"empty":    {{}},
			"the same": {{Raw: same, Base: same}},
			"NaNs":     {{Raw: same, Base: nans}},
			"infinite": {{Raw: bytes.Repeat([]byte{0, 0, 0x80, 0x7f, 0xff, 0xff, 0x7f, 0x7f}, n/8),
				Base: bytes.Repeat([]byte{0, 0, 0x80, 0xff, 0xff, 0xff, 0x7f, 0xff}, n/8)}},
			"other lengths": {{Raw: same, Base: same[2:]}},
			"nowhere":       {{Raw: same, Base: nans, At: -5}},
			"less than row": {{Raw: same[:100], Base: nans[:100], At: 7}},
			"random":        {{Raw: codectest.Random(n), Base: same, At: 3}},
		} {
			for _, cols := range []int{0, 1, 31, 32, 100, 1000, n, 1 << 40} {
				MayBeLowRank(s, lowrank.RowsIn(s, max(cols, 1), kindOf(h)), cols, h)
				columns, ok := FactorColumns(s, cols, h)
				if !ok {
					continue
				}
				if name == "the same" {
					t.Error(h, name, cols)
				}
				if out, ok := EncodeLowRank(nil, s[0].Raw, s[0].Base, columns, cols, 0, h, 2*n); ok {
					if got, err := DecodeLowRank(nil, out, s[0].Base, columns, len(s[0].Raw)); err != nil ||
						!bytes.Equal(got, s[0].Raw) {
						t.Error(h, name, cols, err)
					}
				}
			}
		}
	}
}

// FuzzDecodeLowRank: whatever is stored, and in the columns' place, nothing is written but what was asked
// for, and the twins agree on it.
func FuzzDecodeLowRank(f *testing.F) {
	for _, h := range lowRankHints {
		raw, base := codectest.Merged(64, 50, 2, h.DType, 4)
		columns, ok := FactorColumns(chunksOf(raw, base, h.Elem, len(raw)), 50, h)
		stored, ok2 := EncodeLowRank(nil, raw, base, columns, 50, 20, h, 2*len(raw))
		if !ok || !ok2 {
			f.Fatal(h, "not encoded")
		}
		f.Add(stored, columns, len(raw))
	}
	f.Fuzz(func(t *testing.T, stored, columns []byte, n int) {
		if n < 0 || n > 1<<18 {
			return
		}
		const guard = 64
		base := codectest.Weights(n, 2)
		var all [][]byte
		codectest.Levels(func(how string) {
			buf := bytes.Repeat([]byte{0xee}, n+2*guard)
			out, err := DecodeLowRank(buf[guard:guard], stored, base, columns, n)
			if err == nil && len(out) != n ||
				err != nil && (len(out) != 0 || !errors.Is(err, cas.ErrCorrupt)) {
				t.Fatalf("%s: %d bytes, want %d: %v", how, len(out), n, err)
			}
			want := bytes.Repeat([]byte{0xee}, guard)
			if !bytes.Equal(buf[:guard], want) || !bytes.Equal(buf[guard+n:], want) {
				t.Fatal("something else was written to")
			}
			all = append(all, bytes.Clone(out))
		})
		if !codectest.Same(all) {
			t.Fatal("the twins decode differently")
		}
	})
}

// TestGoldenLowRank is of the end of a row and the beginning of the next, of the fewest columns; each of its
// numbers is predicted by hand.
func TestGoldenLowRank(t *testing.T) {
	shape := lowrank.Shape{Kind: lowrank.BF16, Rank: 2, Exp: -10, Cols: lowrank.MinCols,
		At: lowrank.MinCols - 2, N: 4}
	columns := make([]byte, shape.ColumnsLen())
	for k, v := range map[int][2]int16{30: {3, -4}, 31: {0, 512}, 0: {1, 1}, 1: {-32768, -32768}} {
		at := columns[k/16*16*4+k%16*4:]
		le.PutUint16(at, uint16(v[0]))
		le.PutUint16(at[2:], uint16(v[1]))
	}
	u := []byte{100, 0, 10, 0, 0, 0x80, 0, 0x80}                   // 100 10, -32768 -32768
	base := []byte{0x80, 0x3f, 0x80, 0xbf, 0x00, 0x42, 0x80, 0x3f} // 1, -1, 32, 1
	// 1+260/1024, which lies halfway, -1+5120/1024, 32-65536/1024, 1-2^31/1024
	predicted := []byte{0xa0, 0x3f, 0x80, 0x40, 0x00, 0xc2, 0x00, 0xca}
	raw := bytes.Clone(predicted)
	raw[0]-- // by one less
	out := dump{raw: raw, base: base}
	out.stored = append(appendLowRankHead(nil, &shape), 8, 0, 0, 0, Raw)
	out.stored = append(append(out.stored, u...), 1, 2, 1, 0, 0, 0, 0, partRaw, 1, 0, 0, 0, partConst, 0)
	out.field(1, "bfloat16")
	out.field(2, "rank 2, times 2^-10")
	out.field(8, "32 columns, from column 30 on")
	out.field(5, "rows: 8 bytes, raw")
	out.field(8, "")
	out.field(2, "kind, elements of 2 bytes")
	out.field(1, "1 group")
	out.stream()
	out.part("plane 0", 4)
	out.part("plane 1", 4)
	out.compare(t, "lowrank", func(stored []byte) ([]byte, error) {
		return DecodeLowRank(nil, stored, base, columns, len(raw))
	})
	p := make([]byte, len(base))
	shape.Predict(new(lowrank.Scratch), p, base, u, columns)
	if !bytes.Equal(p, predicted) {
		t.Errorf("predicted % x, want % x", p, predicted)
	}
}
