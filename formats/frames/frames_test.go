package frames

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/fixture"
)

var bound = fixture.Bound{Fixed: 1 << 20, PerByte: 64}

func FuzzParse(f *testing.F) { fixture.Fuzz(f, Parser{}, "orbax/*/d/*", bound) }

// raw is a frame of one raw block of n bytes.
func raw(n int, fill byte) []byte {
	h := uint32(n)<<3 | 1
	return append([]byte(magic+"\x00\x58"), append([]byte{byte(h), byte(h >> 8), byte(h >> 16)},
		bytes.Repeat([]byte{fill}, n)...)...)
}

func data(l *formats.Layout) (out []int64) {
	for _, r := range l.Regions {
		if r.Kind == formats.Data {
			out = append(out, r.Len)
		}
	}
	return out
}

// TestSteps: of two steps of one training, the frames of the arrays that did not change are the same.
func TestSteps(t *testing.T) {
	held := map[[32]byte]bool{}
	var steps [2]int
	for i, pattern := range []string{"orbax/s0/d/*", "orbax/s1/d/*"} {
		for _, p := range fixture.Glob(t, pattern) {
			l := fixture.Check(t, Parser{}, p, bound)
			if l == nil {
				continue
			}
			for _, r := range l.Regions {
				if r.Kind != formats.Data {
					continue
				}
				if sum := sha256.Sum256(p[r.Off : r.Off+r.Len]); !held[sum] {
					held[sum] = true
					steps[i]++
				}
			}
		}
	}
	if steps != [2]int{6, 1} { // six kernels, of which one changes
		t.Errorf("new arrays %v", steps)
	}
}

func TestParse(t *testing.T) {
	a, b, small := raw(5000, 'a'), raw(6000, 'b'), raw(10, 'c')
	join := func(p ...[]byte) []byte { return bytes.Join(p, nil) }
	liar := append([]byte(magic+"\x00\x58"), 0xf8, 0xff, 0x0f) // a block of 131,071 bytes
	for name, c := range map[string]struct {
		p    []byte
		want string
	}{
		"two":                {join(a, b), "[5009 6009]"},
		"a small one":        {join(a, small, b), "[5009 6009]"},
		"text between":       {join(a, []byte("text"), b, []byte("text")), "[5009 6009]"},
		"JSON before":        {join([]byte(`{"a": 1}`), a, b), "[5009 6009]"},
		"a node before":      {join([]byte(nodeMagic+"node"), a, b), "[5009 6009]"},
		"one that lies":      {join(a, liar, b), "[5009 6009]"},
		"a magic at the end": {join(a, b, []byte(magic)), "[5009 6009]"},
		"one":                {a, "null"},
		"one and a half":     {join(a, b[:5000]), "null"},
		"text before":        {join([]byte("text"), a, b), "null"},
		"far away":           {join([]byte("{"), make([]byte, 5000), a, b), "null"},
		"empty":              {nil, "null"},
	} {
		var got []int64
		if l := fixture.Check(t, Parser{}, c.p, bound); l != nil {
			got = data(l)
		}
		if s, _ := json.Marshal(got); string(bytes.ReplaceAll(s, []byte(","), []byte(" "))) != c.want {
			t.Errorf("%s: %s, want %s", name, s, c.want)
		}
	}
}

// TestEndless: what looks like a frame of very many blocks costs a bounded time.
func TestEndless(t *testing.T) {
	z := &zeros{size: 1 << 40}
	if _, err := (Parser{}).Parse(z, z.size); err == nil || z.reads > 1<<14 {
		t.Errorf("%v, %d reads", err, z.reads)
	}
}

// zeros has a frame's magic every MiB and zeros between.
type zeros struct {
	size  int64
	reads int
}

func (z *zeros) ReadAt(p []byte, off int64) (int, error) {
	z.reads++
	for i := range p {
		p[i] = 0
		if at := (off + int64(i)) % (1 << 20); at < int64(len(magic)) {
			p[i] = magic[at]
		}
	}
	return len(p), nil
}
