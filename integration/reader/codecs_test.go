package reader

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/codectest"
	"ckptfs/cas/half"
	"ckptfs/cas/lowrank"
	"ckptfs/cas/recipe"
)

// payload is what a record holds, as programs/decode.py reads it.
type payload struct {
	Name    string `json:"name"`
	Codec   byte   `json:"codec"`
	Stored  string `json:"stored"`
	Raw     int    `json:"raw"`
	Base    string `json:"base"`
	Columns string `json:"columns"`
	Hash    string `json:"hash"`
	Trace   bool   `json:"trace"`  // whether the lines that it reaches count, which takes time
	Damage  int    `json:"damage"` // how often it is decoded damaged
}

// payloads collects what the codecs make.
type payloads struct {
	t     *testing.T
	trace bool // whether the lines count that the next ones reach
	all   []payload
}

func (c *payloads) add(name string, id byte, stored, raw, base, columns []byte) {
	p := payload{
		Name: name, Codec: id, Stored: hex.EncodeToString(stored), Raw: len(raw),
		Base: hex.EncodeToString(base), Columns: hex.EncodeToString(columns), Hash: cas.Sum(raw).String(),
		Trace: len(raw) < 5<<10 || c.trace,
	}
	if len(stored) > 0 && len(raw) < 10<<10 {
		p.Damage = 5
	}
	c.all = append(c.all, p)
}

func (c *payloads) alone(name string, raw []byte, h codec.Hint) {
	id, stored := codec.Encode(nil, raw, h)
	c.add(name, id, stored, raw, nil, nil)
}

func (c *payloads) delta(name string, raw, base []byte, h codec.Hint) {
	stored, ok := codec.EncodeDelta(nil, raw, base, h, 10*len(raw)+100)
	if !ok {
		c.t.Fatalf("%s: no delta", name)
	}
	c.add(name, codec.Delta, stored, raw, base, nil)
}

// known are the numbers of all codecs.
func known() (ids []byte) {
	for i := range 256 {
		if _, err := codec.ByID(byte(i)); err == nil || codec.NeedsBase(byte(i)) {
			ids = append(ids, byte(i))
		}
	}
	return ids
}

// TestCodecs decodes what each codec makes of all kinds of bytes. A new codec fails it until the reader
// knows it and its payloads are here.
func TestCodecs(t *testing.T) {
	c := &payloads{t: t}
	c.numbers()
	c.parts()
	c.text()
	c.changes()
	c.rounded()
	c.lowRank()
	c.recipes()
	c.quantised()
	c.eights()
	c.ruled()
	c.channels()
	c.dequantised()
	c.combined()
	c.transposed()
	for _, id := range known() {
		if !slices.ContainsFunc(c.all, func(p payload) bool { return p.Codec == id }) {
			t.Errorf("codec %d is not among the payloads", id)
		}
	}
	var lines bytes.Buffer
	for _, p := range c.all {
		if err := json.NewEncoder(&lines).Encode(p); err != nil {
			t.Fatal(err)
		}
	}
	list := filepath.Join(t.TempDir(), "payloads")
	if err := os.WriteFile(list, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	out, said, code := python(t, "../programs/decode.py", reader, list)
	if code != 0 {
		t.Fatalf("decode.py: %s", said)
	}
	var got struct {
		Lanes  []int
		Missed []string
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 4, 16, 32, 64}; !slices.Equal(got.Lanes, want) {
		t.Errorf("streams of %d states were read, want %d", got.Lanes, want)
	}
	for _, line := range got.Missed {
		t.Errorf("no payload reaches line %s", line)
	}
}

// lengths are such that streams have all numbers of states, and that bytes are left over.
var lengths = []int{1, 7, 300, 1027, 4099, 20_000}

// several bytes have more than one slab.
const several = 270_001

var (
	singles = codec.Hint{DType: "F32", Elem: 4}
	brains  = codec.Hint{DType: "BF16", Elem: 2}
	halves  = codec.Hint{DType: "F16", Elem: 2}
	bytes8  = codec.Hint{DType: "U8", Elem: 1}

	types = []codec.Hint{
		singles, brains, halves, bytes8, {DType: "F64", Elem: 8}, {DType: "I32", Elem: 4},
		{DType: "I64", Elem: 8}, {DType: "F8_E4M3", Elem: 1}, {},
	}
)

func (c *payloads) numbers() {
	c.alone("weights of several slabs", codectest.Weights(several, 4), singles)
	for _, n := range lengths {
		for _, h := range types {
			c.alone(fmt.Sprintf("%d bytes of weights as %v", n, h), codectest.Weights(n, max(min(h.Elem, 4), 1)), h)
		}
		c.alone(fmt.Sprintf("%d bytes of noise", n), codectest.Random(n), codec.Hint{})
		c.alone(fmt.Sprintf("%d zeros", n), make([]byte, n), singles)
		c.alone(fmt.Sprintf("%d skewed bytes", n), codectest.Skewed(n, 3), bytes8)
		c.alone(fmt.Sprintf("%d bytes, sparse", n), thinned(codectest.Weights(n, 4), 16), singles)
	}
}

// thinned keeps 6 elements of 4 bytes in each run of so many.
func thinned(p []byte, every int) []byte {
	for i := range p {
		if i/4%every >= 6 {
			p[i] = 0
		}
	}
	return p
}

// parts has what only many numbers are worth: streams of 16 and 64 states, bitmaps that repeat themselves or
// that planes have in common, elements that are sorted.
func (c *payloads) parts() {
	c.trace = true
	defer func() { c.trace = false }()
	c.alone("few bits", codectest.Skewed(12<<10, 0.3), bytes8)
	c.alone("many bits", codectest.Skewed(48<<10, 4), bytes8)
	c.alone("a period", middles(64<<10), singles)
	for _, n := range []int{128 << 10, 128<<10 + 22} {
		for h, size := range map[codec.Hint]float64{singles: 1e-5, brains: 1e-4} {
			base := codectest.Weights(n, h.Elem)
			c.delta(fmt.Sprintf("%d bytes of %v, sorted", n, h), drift(base, h, size), base, h)
		}
	}
	base := make([]byte, 128<<10) // of three exponents, so that groups are empty
	rng := rand.New(rand.NewPCG(21, 22))
	for i := 0; i < len(base); i += 4 {
		v := float32(1+rng.Float64()) / float32(int(1)<<(3*rng.IntN(3)))
		binary.LittleEndian.PutUint32(base[i:], math.Float32bits(v))
	}
	c.delta("few exponents", drift(base, singles, 1e-5), base, singles)
	stored := []byte{2, 0, 0, 0, 0, 3, 0, 0x11, 0, 'a', 'b', 4, 0, 0, 'd'} // planes whose zeros are the same
	raw, err := codec.Decode(nil, codec.Planes, stored, 16)
	if err != nil {
		c.t.Fatal(err)
	}
	c.add("a bitmap again", codec.Planes, stored, raw, nil, nil)
}

// drift moves every float by about so much, as Adam does.
func drift(base []byte, h codec.Hint, size float64) []byte {
	rng := rand.New(rand.NewPCG(11, 12))
	p := bytes.Clone(base)
	le := binary.LittleEndian
	for i := 0; i+h.Elem <= len(p); i += h.Elem {
		var x [4]byte
		copy(x[4-h.Elem:], p[i:])
		v := math.Float32frombits(le.Uint32(x[:])) + float32(size*rng.NormFloat64())
		le.PutUint32(x[:], math.Float32bits(v))
		copy(p[i:i+h.Elem], x[4-h.Elem:])
	}
	return p
}

// middles are kernels of 3 by 3, of which the middle alone was ever used.
func middles(n int) []byte {
	p := codectest.Weights(n, 4)
	for i := range p {
		if i/4%9 != 4 {
			p[i] = 0
		}
	}
	return p
}

// lines are n bytes of text.
func lines(n int, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 3))
	var p []byte
	for i := 0; len(p) < n; i++ {
		p = fmt.Appendf(p, "step %d loss %.5f of layer.%d.weight\n", i, 1/float64(i+1), rng.IntN(40))
	}
	return p[:n]
}

func (c *payloads) text() {
	for _, n := range lengths {
		c.alone(fmt.Sprintf("%d bytes of text", n), lines(n, 1), codec.Hint{})
	}
	for _, n := range lengths[2:] {
		raw, base := lines(n, 1), lines(n+20, 2)
		id, stored, ok := codec.EncodeAgainst(nil, raw, base, codec.Hint{}, len(raw))
		if !ok || id != codec.Patch {
			c.t.Fatalf("%d bytes of text are codec %d: %v", n, id, ok)
		}
		c.add(fmt.Sprintf("%d bytes of text, changed", n), id, stored, raw, base, nil)
	}
}

func (c *payloads) changes() {
	base := codectest.Weights(several, 4)
	c.delta("changes of several slabs", moved(base, 4, 5), base, singles)
	for _, n := range lengths[2:] {
		for _, h := range types {
			if h.Elem == 0 {
				continue
			}
			for _, most := range []uint64{1, 40, 5000} {
				base := codectest.Weights(n, max(min(h.Elem, 4), 1))
				c.delta(fmt.Sprintf("%d bytes of %v, moved by %d", n, h, most), moved(base, h.Elem, most), base, h)
			}
		}
	}
}

// moved moves elements by up to so much, those with higher exponents by more.
func moved(base []byte, width int, most uint64) []byte {
	raw := bytes.Clone(base)
	rng := rand.New(rand.NewPCG(most, 9))
	for i := 0; i+width <= len(raw); i += width {
		var x [8]byte
		copy(x[:], raw[i:i+width])
		by := rng.Uint64N(most + 1)
		if rng.IntN(9) == 0 {
			by = -by
		}
		binary.LittleEndian.PutUint64(x[:], binary.LittleEndian.Uint64(x[:])+by>>(i/width%4))
		copy(raw[i:i+width], x[:width])
	}
	return raw
}

func (c *payloads) rounded() {
	le := binary.LittleEndian
	for _, n := range []int{8, 1000, 4096, 200_000} {
		base := codectest.Weights(n, 4)
		for i := 0; i+4 <= n/8; i += 4 { // all exponents, and ties
			le.PutUint32(base[i:], uint32(i)*0x9e3779b9)
			if i%3 == 0 {
				le.PutUint32(base[i:], uint32(i)<<20|0x1000)
			}
		}
		for k, nan := range [][]uint16{nil, {0xffff, 0xffff, 0xffff}, {0x7fff, 0xffff, 0xfffe}} {
			for i, x := range []uint32{0x7fc00001, 0xffffffff, 0x7f800001} {
				if nan != nil && n >= 1000 {
					le.PutUint32(base[n/2+4*i:], x)
				}
			}
			for _, h := range []codec.Hint{brains, halves} {
				to := half.BF16
				if h.DType == "F16" {
					to = half.F16
				}
				raw := make([]byte, n/2)
				half.Round(raw, base, to)
				for i := range raw[:n/4] { // what a NaN became
					if x := le.Uint32(base[4*i:]); nan != nil && half.IsNaN(x) {
						le.PutUint16(raw[2*i:], nan[i%3])
					}
				}
				stored, ok := codec.EncodeRounded(nil, raw, base, h)
				if !ok {
					c.t.Fatalf("%d bytes of %v are not rounded", n, h)
				}
				c.add(fmt.Sprintf("%d bytes rounded to %v, NaNs %d", n, h, k), codec.Rounded, stored, raw, base, nil)
			}
		}
	}
}

// recipes are made of floats of each type, and of bytes in another order, with what none of the bases has.
func (c *payloads) recipes() {
	r := rand.New(rand.NewPCG(5, 6))
	base := make([]byte, 4096)
	for i := range base {
		base[i] = byte(r.Uint32())
	}
	take := func(t recipe.Type) recipe.Take {
		return recipe.Take{Type: t, Groups: []recipe.Group{
			{Repeat: 3, Stretches: []recipe.Stretch{{First: 40, Len: 20, Step: -16},
				{First: 8, Len: 3, Step: 50}}},
			{Repeat: 1, Stretches: []recipe.Stretch{{First: 4096/t.Size() - 5, Len: 9},
				{First: 0, Len: 256}}}}}
	}
	add := func(name string, prog recipe.Program, literals []byte) {
		stored := prog.Append(nil)
		if stored = binary.AppendUvarint(stored, uint64(len(literals))); len(literals) > 0 {
			stored = binary.AppendUvarint(append(stored, codec.Raw), uint64(len(literals)))
			stored = append(stored, literals...)
		}
		t := prog[0].(recipe.Take)
		n, _ := t.Len()
		n *= t.Type.Size()
		if len(prog) > 1 {
			n = n / t.Type.Size() * 4
		}
		if len(prog) > 2 {
			n /= 2
		}
		raw, err := recipe.Decode(nil, stored, base, n)
		if err != nil {
			c.t.Fatal(name, err)
		}
		c.add(name, codec.Recipe, stored, raw, base, nil)
	}
	for _, t := range []recipe.Type{recipe.F32, recipe.BF16, recipe.F16, recipe.F8E4M3, recipe.F8E5M2,
		recipe.Bytes1, recipe.Bytes2, recipe.Bytes4, recipe.Bytes8} {
		add(fmt.Sprint("takes ", t), recipe.Program{take(t)}, nil)
		add(fmt.Sprint("takes more of ", t), recipe.Program{take(t)}, base[:3*t.Size()])
		if t > recipe.F8E5M2 {
			continue
		}
		add(fmt.Sprint("widens ", t), recipe.Program{take(t), recipe.Widen{}}, nil)
		add(fmt.Sprint("widens all of ", t),
			recipe.Program{recipe.Run(t, 0, len(base)/t.Size()), recipe.Widen{}}, nil)
		for _, to := range []half.Type{half.BF16, half.F16} {
			add(fmt.Sprint("rounds ", t, " to ", to),
				recipe.Program{take(t), recipe.Widen{}, recipe.Round{To: to}}, nil)
		}
	}
}

func (c *payloads) lowRank() {
	for _, h := range []codec.Hint{brains, halves, singles} {
		ulps := 4.0
		if h.Elem == 4 {
			ulps = 1e5
		}
		const rows, cols, chunk = 150, 70, 10_000
		raw, base := codectest.Merged(rows, cols, 3, h.DType, ulps)
		for i := range 3 { // where nothing is predicted
			x := uint32(0x7f800000)
			switch h.DType {
			case "F16":
				x = 0x7c00
			case "BF16":
				x >>= 16
			}
			var p [4]byte
			binary.LittleEndian.PutUint32(p[:], x|uint32(i))
			copy(base[40*i:], p[:h.Elem])
		}
		var all []lowrank.Stretch
		for at := 0; at < len(raw); at += chunk {
			end := min(at+chunk, len(raw))
			all = append(all, lowrank.Stretch{Raw: raw[at:end], Base: base[at:end], At: int64(at / h.Elem)})
		}
		columns, ok := codec.FactorColumns(all, cols, h)
		if !ok {
			c.t.Fatalf("%v: no columns", h)
		}
		for _, s := range all {
			stored, ok := codec.EncodeLowRank(nil, s.Raw, s.Base, columns, cols, s.At, h, 2*len(s.Raw))
			if !ok {
				c.t.Fatalf("%v: not of low rank", h)
			}
			c.add(fmt.Sprintf("%v of low rank, from %d", h, s.At), codec.LowRank, stored, s.Raw, s.Base, columns)
			extreme := bytes.Clone(stored)
			extreme[2] = 127 // scaled by so much, everything is infinite
			if got, err := codec.DecodeLowRank(nil, extreme, s.Base, columns, len(s.Raw)); err == nil {
				c.add(fmt.Sprintf("%v scaled beyond, from %d", h, s.At), codec.LowRank, extreme, got, s.Base, columns)
			}
		}
	}
}
