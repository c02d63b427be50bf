package codec

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/cas/codectest"
)

// middles are a moment of kernels of 3 by 3 of which only the middle was ever used.
func middles(n int) []byte {
	p := codectest.Weights(n, 4)
	for i := range p {
		if i/4%9 != 4 {
			p[i] = 0
		}
	}
	return p
}

// bitmapOf says which bytes of p are not zero.
func bitmapOf(p []byte) []byte {
	bitmap := make([]byte, (len(p)+7)/8)
	pack(make([]byte, len(p)+64), bitmap, p)
	return bitmap
}

func TestLag(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "p")
		period := rapid.IntRange(1, 255).Draw(t, "period")
		want := bytes.Clone(p)
		for i := len(p) - 1; i >= period; i-- {
			want[i] ^= want[i-period]
		}
		d := make([]byte, len(p))
		if lag(d, p, period); !bytes.Equal(d, want) {
			t.Fatalf("% x, want % x", d, want)
		}
		if unlag(d, period, make([]byte, len(p))); !bytes.Equal(d, p) {
			t.Fatalf("comes back as % x, want % x", d, p)
		}
	})
}

func TestPeriodOf(t *testing.T) {
	for period := 1; period <= maxPeriod; period++ {
		p := bytes.Repeat(append(make([]byte, period-1), 1), 2000/period)
		if got := periodOf(p); got != period {
			t.Errorf("%d, want %d", got, period)
		}
	}
	for name, p := range map[string][]byte{"random bytes": codectest.Random(2000), "what is zero at random": bitmapOf(adam(cas.ChunkSize))} {
		if got := periodOf(p); got != 0 {
			t.Errorf("%s: a period of %d", name, got)
		}
	}
}

// A bitmap that repeats itself takes next to nothing, alone and in a delta.
func TestPeriodic(t *testing.T) {
	raw, h := middles(cas.ChunkSize), Hint{"F32", 4}
	base := make([]byte, len(raw))
	codectest.Levels(func(how string) {
		id, stored := Encode(nil, raw, h)
		if most := len(raw) / 9 * 90 / 100; id != Planes || len(stored) > most {
			t.Errorf("%s: codec %d, %d bytes, want %d at most", how, id, len(stored), most)
		}
		if got, err := Decode(nil, id, stored, len(raw)); err != nil || !bytes.Equal(got, raw) {
			t.Error(how, err)
		}
		id, stored, ok := EncodeAgainst(nil, raw, base, h, len(raw)/8)
		if id != Delta || !ok || !NeedsBase(id) {
			t.Fatalf("%s: codec %d, %v", how, id, ok)
		}
		if got, err := DecodeAgainst(nil, id, stored, base, len(raw)); err != nil || !bytes.Equal(got, raw) {
			t.Error(how, err)
		}
	})
}

func TestPeriodicRefuses(t *testing.T) {
	for name, parts := range map[string][]byte{
		"no period":     {partSparse, partPeriod},
		"0":             {partSparse, partPeriod, 0, partRaw, 1, partRaw, 'a'},
		"no bitmap":     {partSparse, partPeriod, 1},
		"twice":         {partSparse, partPeriod, 1, partPeriod, 1, partRaw, 1, partRaw, 'a'},
		"sparse":        {partSparse, partPeriod, 1, partSparse, partRaw, 1, partRaw, 1, partRaw, 'a'},
		"of the others": {partSparse, partRaw, 1, partPeriod, 1, partRaw, 'a'},
		"of a plane":    {partPeriod, 1, partRaw, 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'},
	} {
		_, err := Decode(nil, Planes, append([]byte{1, 0, 0, 0, 0}, parts...), 8)
		if !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Bits past the end, which the period made.
	if _, err := Decode(nil, Planes, []byte{1, 0, 0, 0, 0, partSparse, partPeriod, 1, partRaw, 0x80, 0,
		partRaw, 'a', 'b'}, 12); !errors.Is(err, cas.ErrCorrupt) {
		t.Error(err)
	}
	got, err := Decode(nil, Planes,
		[]byte{1, 0, 0, 0, 0, partSparse, partPeriod, 1, partRaw, 2, 0, partRaw, 'a', 'b'}, 12)
	if want := "\x00a\x00\x00\x00\x00\x00\x00\x00b\x00\x00"; err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
}

func TestGoldenPeriodic(t *testing.T) {
	raw := make([]byte, 9*1000)
	for i := 4; i < len(raw); i += 9 {
		raw[i] = 7
	}
	stored := encodePlanes(nil, raw, Hint{"U8", 1})
	d := dump{raw: raw, stored: stored}
	d.planes()
	d.compare(t, "periodic", func(stored []byte) ([]byte, error) {
		return Decode(nil, Planes, stored, len(raw))
	})
}
