package codec

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/cas/codectest"
)

// step is raw after a step of training: every float moved by a share of itself of about size.
func step(raw []byte, h Hint, size float64) []byte {
	return moveAll(raw, h, func(v, by float64) float64 { return v * (1 + size*by) })
}

// drift is raw with every float moved by about size, as Adam does.
func drift(raw []byte, h Hint, size float64) []byte {
	return moveAll(raw, h, func(v, by float64) float64 { return v + size*by })
}

func moveAll(raw []byte, h Hint, move func(v, by float64) float64) []byte {
	r := rand.New(rand.NewPCG(11, 12))
	p := bytes.Clone(raw)
	w, _ := numbers(h)
	for i := 0; i+w <= len(p); i += w {
		by := r.NormFloat64()
		switch h.DType {
		case "F32":
			v := math.Float32frombits(le.Uint32(p[i:]))
			le.PutUint32(p[i:], math.Float32bits(float32(move(float64(v), by))))
		case "BF16":
			v := math.Float32frombits(uint32(le.Uint16(p[i:])) << 16)
			le.PutUint16(p[i:], uint16((math.Float32bits(float32(move(float64(v), by)))+0x8000)>>16))
		}
	}
	return p
}

func TestDeltaRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.SampledFrom([]Hint{{"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8}, {"I32", 4}, {"U8", 1},
			{"F8_E4M3", 1}, {"", 2}}).Draw(t, "hint")
		raw := rapid.SliceOfN(rapid.Byte(), minLen, 700).Draw(t, "raw")
		base := bytes.Clone(raw)
		for range rapid.IntRange(0, 50).Draw(t, "changes") {
			base[rapid.IntRange(0, len(raw)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "to")
		}
		out, ok := EncodeDelta([]byte("before"), raw, base, h, 10*len(raw))
		if !ok || !bytes.HasPrefix(out, []byte("before")) {
			t.Fatalf("not encoded: %v", ok)
		}
		got, err := DecodeDelta([]byte("x"), out[6:], base, len(raw))
		if err != nil || !bytes.Equal(got[1:], raw) {
			t.Fatalf("%v: % x, want % x", err, got, raw)
		}
	})
}

// TestGoldenDelta is of a slab that is sorted, by fewer elements than would pay, and in part.
func TestGoldenDelta(t *testing.T) {
	h := Hint{"F32", 4}
	base := codectest.Weights(4*400, 4)
	for i := 0; i < len(base); i += 8 { // every other one is a thousandth of what it was
		le.PutUint32(base[i:], le.Uint32(base[i:])-10<<23)
	}
	raw := drift(base, h, 3e-11)
	s := new(planeState)
	splitDiff(s.planes(len(raw)/4, 4), s.diffs[:], raw, base, 4, true)
	shape := groupShape{n: 2, shift: 23, top: 114}
	stored := []byte{1, 4, byte(shape.n), byte(shape.shift), byte(shape.top)}
	g := s.sortBy(shape, base, 4)
	out := dump{raw: raw, base: base, stored: s.encodeSlab(stored, 4, g)}
	out.delta()
	out.compare(t, "delta", func(stored []byte) ([]byte, error) {
		return DecodeDelta(nil, stored, base, len(raw))
	})
}

// moved draws elements and a base of them, as long, with as many moved as a step of training might.
func moved(t *rapid.T) (raw, base []byte, h Hint) {
	h = rapid.SampledFrom([]Hint{{"F32", 4}, {"BF16", 2}, {"F16", 2}, {"C64", 8}, {"F64", 8},
		{"I32", 4}}).Draw(t, "hint")
	base = chunk(t)
	by := rapid.SampledFrom([]func([]byte, Hint, float64) []byte{step, drift}).Draw(t, "how")
	raw = by(base, h, rapid.SampledFrom([]float64{0, 1e-7, 1e-4, 1e-2, 1}).Draw(t, "size"))
	return raw, base, h
}

func TestAnyDeltaRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw, base, h := moved(t)
		var all [][]byte
		codectest.Levels(func(how string) {
			var out []byte
			var ok bool
			out, ok = EncodeDelta([]byte("kept"), raw, base, h, 2*len(raw)+100)
			if !ok && len(raw) >= minLen {
				t.Fatal(how, "not encoded")
			}
			all = append(all, out)
		})
		if !codectest.Same(all) {
			t.Fatal("the twins encode differently")
		}
		if len(raw) < minLen {
			return
		}
		codectest.Levels(func(how string) {
			if got, err := DecodeAgainst(nil, Delta, all[0][4:], base, len(raw)); err != nil ||
				!bytes.Equal(got, raw) {
				t.Fatal(how, err)
			}
		})
	})
}

// Damage is noticed or changes values; it never reaches past the bytes that were asked for, and the twins
// agree on it.
func TestDamagedDelta(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw, base, h := moved(t)
		stored, ok := EncodeDelta(nil, raw, base, h, 2*len(raw)+100)
		if !ok {
			return
		}
		for range rapid.IntRange(1, 5).Draw(t, "flips") {
			at := rapid.OneOf(rapid.IntRange(0, len(stored)-1),
				rapid.IntRange(0, min(len(stored), 200)-1)).Draw(t, "at")
			stored[at] ^= rapid.ByteRange(1, 255).Draw(t, "by")
		}
		const guard = 64
		var all [][]byte
		codectest.Levels(func(string) {
			buf := bytes.Repeat([]byte{0xee}, len(raw)+2*guard)
			out, err := DecodeDelta(buf[guard:guard], stored, base, len(raw))
			if err == nil && len(out) != len(raw) ||
				err != nil && (len(out) != 0 || !errors.Is(err, cas.ErrCorrupt)) {
				t.Fatalf("%d bytes, %v", len(out), err)
			}
			want := bytes.Repeat([]byte{0xee}, guard)
			if !bytes.Equal(buf[:guard], want) || !bytes.Equal(buf[guard+len(raw):], want) {
				t.Fatal("something else was written to")
			}
			all = append(all, bytes.Clone(out))
		})
		if !codectest.Same(all) {
			t.Fatal("the twins decode differently")
		}
	})
}

// TestAnotherBase: what is sorted by one base says nothing of another that comes to lie in the same place.
func TestAnotherBase(t *testing.T) {
	h := Hint{"F32", 4}
	s := new(planeState)
	base, raw := make([]byte, cas.ChunkSize), make([]byte, cas.ChunkSize)
	for i := range 2 {
		for at := 0; at < len(base); at += 4 {
			k := uint32(at / 4 * (1 + 2*i) % 4) // another exponent for most in the second
			le.PutUint32(base[at:], (120+k)<<23|uint32(at)*2654435761>>9)
			le.PutUint32(raw[at:], le.Uint32(base[at:])+uint32(at)*2654435761>>(28-k))
		}
		stored, ok := s.encodeDelta(nil, raw, base, h, len(raw))
		if !ok || stored[2] < 2 {
			t.Fatalf("base %d: %v, %d groups", i, ok, stored[2])
		}
		back := make([]byte, len(raw))
		if err := new(planeState).decodeDelta(output{p: back}, stored, base); err != nil ||
			!bytes.Equal(back, raw) {
			t.Fatalf("base %d: what was encoded is not what comes back: %v", i, err)
		}
		if err := s.decodeDelta(output{p: back}, stored, base); err != nil || !bytes.Equal(back, raw) {
			t.Fatalf("base %d: what was encoded is not what comes back where it was: %v", i, err)
		}
	}
}

func TestGroups(t *testing.T) {
	for n := range 300 {
		for _, w := range []int{2, 4} {
			base := codectest.Weights(n*w, w)
			for groupCount := 2; groupCount <= maxGroups; groupCount++ {
				shape := groupShape{n: groupCount, shift: map[int]int{2: 7, 4: 23}[w], top: 123}
				var of, sorted, counts [][]byte
				codectest.Levels(func(how string) {
					g := new(planeState).sortBy(shape, base, w)
					all := sortPlanes(g, 1+n%6, codectest.Random)
					if err := all.unsort(g); err != nil {
						t.Fatalf("%s: %d elements of %d bytes, %d groups: %v", how, n, w, groupCount, err)
					}
					of, sorted, counts = append(of, g.of), append(sorted, bytes.Join(all.sorted, nil)),
						append(counts, fmt.Append(nil, g.counts))
				})
				for _, all := range [][][]byte{of, sorted, counts} {
					if !codectest.Same(all) {
						t.Fatalf("%d elements of %d bytes, %d groups: the twins differ", n, w, groupCount)
					}
				}
			}
		}
	}
}

// sortedPlanes are some planes, and what sort made of each.
type sortedPlanes struct{ planes, sorted [][]byte }

// sortPlanes sorts so many planes together. They are random, and all bytes lie in what room gives.
func sortPlanes(g *groups, planes int, room func(n int) []byte) *sortedPlanes {
	var all sortedPlanes
	var dst [][]byte
	for i := range planes {
		p := room(len(g.of))
		copy(p, codectest.Random(planes * len(g.of))[i*len(g.of):])
		all.planes = append(all.planes, p)
		dst = append(dst, room(len(g.of)+g.n*gap))
	}
	g.sort(dst, all.planes)
	for _, p := range dst {
		s := room(len(g.of) + 16)
		for at, n := 0, 0; n < g.n; n++ {
			at += copy(s[at:], g.sorted(p)[n])
		}
		all.sorted = append(all.sorted, s)
	}
	return &all
}

// unsort is an error if not all planes come back.
func (all *sortedPlanes) unsort(g *groups) error {
	back := make([][]byte, len(all.planes))
	for i := range back {
		back[i] = bytes.Clone(all.planes[i])
		clear(all.planes[i])
	}
	g.unsort(all.planes, all.sorted)
	for i, p := range all.planes {
		if !bytes.Equal(p, back[i]) {
			return fmt.Errorf("plane %d of %d comes back as % x, want % x", i, len(back), p, back[i])
		}
	}
	return nil
}

// TestOrder: what is next to each other among the floats is so among the integers; and what is no number
// survives.
func TestOrder(t *testing.T) {
	floats := []float32{float32(math.Inf(-1)), -math.MaxFloat32, -1, -math.SmallestNonzeroFloat32,
		float32(math.Copysign(0, -1)), 0,
		math.SmallestNonzeroFloat32, 1, math.Nextafter32(1, 2), math.MaxFloat32, float32(math.Inf(1))}
	for i, f := range floats {
		u := uint64(math.Float32bits(f))
		o := order(u, 32) & lowHalf
		if disorder(o, 32)&lowHalf != u {
			t.Errorf("%v does not come back", f)
		}
		if i > 0 && order(uint64(math.Float32bits(floats[i-1])), 32)&lowHalf >= o {
			t.Errorf("%v is not above %v", f, floats[i-1])
		}
	}
	for u := range uint64(1 << 16) {
		if disorder(order(u, 16)&0xffff, 16)&0xffff != u {
			t.Fatalf("%#x does not come back", u)
		}
	}
}

func TestDeltaTwins(t *testing.T) {
	for n := range 600 {
		a, base := codectest.Random(n), codectest.Random(n + 1)[1:]
		for _, w := range []int{1, 2, 4, 8} {
			for _, floats := range []bool{false, true} {
				twin, e := make([]byte, n), make([]byte, n)
				diffPortable(twin, a, base, w, floats)
				copy(e, twin)
				if undiffPortable(e, base, w, floats); !bytes.Equal(e, a) {
					t.Fatalf("width %d, floats %v, %d bytes: the twin's % x, want % x", w, floats, n, e, a)
				}
				codectest.Levels(func(how string) {
					d, p, whole := make([]byte, n), [8][]byte{}, n/w*w
					check := func(what string, want []byte) {
						if !bytes.Equal(d, want) {
							t.Fatalf("%s, width %d, floats %v, %d bytes: % x %s, want % x", how, w, floats, n, d, what,
								want)
						}
					}
					diff(d, a, base, w, floats)
					check("apart", twin)
					for k := range w {
						p[k] = make([]byte, n/w)
					}
					splitDiff(&p, make([]byte, n), a[:whole], base, w, floats)
					merge(d[:whole], &p, w, 0)
					check("by planes", twin)
					mergeUndiff(d[:whole], &p, base, w, floats)
					check("from planes", a)
					copy(d, twin)
					undiff(d, base, w, floats)
					check("together", a)
				})
			}
		}
	}
}

func TestDeltaPays(t *testing.T) {
	for _, h := range []Hint{{"F32", 4}, {"BF16", 2}} {
		raw := codectest.Weights(cas.ChunkSize, h.Elem)
		for _, size := range []float64{1e-4, 1e-2} {
			now := step(raw, h, size)
			_, alone := Encode(nil, now, h)
			out, ok := EncodeDelta(nil, now, raw, h, len(alone))
			if !ok {
				t.Errorf("%s moved by %g: no smaller than alone", h.DType, size)
			}
			a, d := Estimate(now, raw, h)
			t.Logf("%s moved by %g: alone %.1f %% (estimate %.1f), delta %.1f %% (%.1f)", h.DType, size,
				100*float64(len(alone))/float64(len(now)), 100*a, 100*float64(len(out))/float64(len(now)),
				100*d)
			if got := float64(len(out)) / float64(len(now)); math.Abs(got-d) > 0.02 {
				t.Errorf("%s moved by %g: %.3f estimated as %.3f", h.DType, size, got, d)
			}
			if got := float64(len(alone)) / float64(len(now)); math.Abs(got-a) > 0.02 {
				t.Errorf("%s moved by %g, alone: %.3f estimated as %.3f", h.DType, size, got, a)
			}
		}
		other := step(codectest.Random(cas.ChunkSize), h, 0)
		if _, ok := EncodeDelta(nil, other, raw, h, len(raw)/2); ok {
			t.Errorf("%s: random bytes took half", h.DType)
		}
	}
	if a, d := Estimate(nil, nil, Hint{"F32", 4}); a != 1 || d != 1 {
		t.Error("nothing is estimated")
	}
	if _, ok := EncodeDelta(nil, codectest.Random(100), codectest.Random(99), Hint{"F32", 4}, 1000); ok {
		t.Error("a base of another length was taken")
	}
}

func TestDeltaRefuses(t *testing.T) {
	raw := codectest.Weights(1000, 4)
	stored, _ := EncodeDelta(nil, raw, step(raw, Hint{"F32", 4}, 1e-3), Hint{"F32", 4}, 2000)
	for name, c := range map[string]struct {
		stored []byte
		base   int
		n      int
	}{
		"empty":        {nil, 1000, 1000},
		"kind":         {append([]byte{2}, stored[1:]...), 1000, 1000},
		"no groups":    {append([]byte{1, 4, 0, 23, 120}, stored[3:]...), 1000, 1000},
		"many groups":  {append([]byte{1, 4, 7, 23, 120}, stored[3:]...), 1000, 1000},
		"low exponent": {append([]byte{1, 4, 2, 22, 120}, stored[3:]...), 1000, 1000},
		"no exponent":  {append([]byte{1, 4, 2, 31, 120}, stored[3:]...), 1000, 1000},
		"wide groups":  {append([]byte{1, 8, 2, 55, 120}, stored[3:]...), 1000, 1000},
		"rotated":      {append([]byte{1, 0x14}, stored[2:]...), 1000, 1000},
		"width":        {append([]byte{1, 3}, stored[2:]...), 1000, 1000},
		"other base":   {stored, 999, 1000},
		"other length": {stored, 1004, 1004},
		"cut":          {stored[:len(stored)-1], 1000, 1000},
	} {
		if _, err := DecodeDelta(nil, c.stored, make([]byte, c.base), c.n); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeDelta(f *testing.F) {
	raw := codectest.Weights(600, 4)
	stored, _ := EncodeDelta(nil, raw, step(raw, Hint{"F32", 4}, 1e-3), Hint{"F32", 4}, 2000)
	f.Add(stored, 600)
	f.Add([]byte{0, 2}, 5)
	raw = codectest.Weights(20000, 2)
	stored, _ = EncodeDelta(nil, raw, step(raw, Hint{"BF16", 2}, 1e-2), Hint{"BF16", 2}, 20000)
	f.Add(stored, 20000)
	stored, _ = EncodeDelta(nil, middles(100000), make([]byte, 100000), Hint{"F32", 4}, 20000)
	f.Add(stored, 100000)
	f.Fuzz(func(t *testing.T, stored []byte, n int) {
		if n < 0 || n > 1<<20 {
			return
		}
		base := codectest.Weights(n, 2)
		var outs [][]byte
		codectest.Levels(func(how string) {
			out, err := DecodeDelta(nil, stored, base, n)
			if outs = append(outs, out); err == nil && len(out) != n {
				t.Fatalf("%s: %d bytes, want %d", how, len(out), n)
			}
		})
		if !codectest.Same(outs) {
			t.Fatal("the levels decode differently")
		}
	})
}

// BenchmarkDelta is of weights that moved by a share of themselves, and of some that moved by as much as
// others, so that groups pay.
func BenchmarkDelta(b *testing.B) {
	for _, c := range []struct {
		how  string
		h    Hint
		move func([]byte, Hint, float64) []byte
		size float64
	}{
		{"step", Hint{"F32", 4}, step, 1e-3}, {"step", Hint{"BF16", 2}, step, 1e-3},
		{"drift", Hint{"F32", 4}, drift, 1e-5}, {"drift", Hint{"BF16", 2}, drift, 1e-4},
	} {
		raw := codectest.Weights(cas.ChunkSize, c.h.Elem)
		now := c.move(raw, c.h, c.size)
		stored, _ := EncodeDelta(nil, now, raw, c.h, len(now))
		var dst []byte
		name := c.h.DType + "/" + c.how
		b.Run(name+"/encode", func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				dst, _ = EncodeDelta(dst[:0], now, raw, c.h, len(now))
			}
			b.ReportMetric(100*float64(len(stored))/float64(len(raw)), "%size")
		})
		b.Run(name+"/decode", func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				dst, _ = DecodeDelta(dst[:0], stored, raw, len(raw))
			}
		})
		b.Run(name+"/estimate", func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				Estimate(now, raw, c.h)
			}
		})
	}
}
