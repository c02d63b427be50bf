package quant

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"ckptfs/cas/half"
)

// apartGoldens are what bitsandbytes and compressed-tensors made (testdata/apart.py), and what of it follows.
var apartGoldens = []struct {
	name    string
	format  Format
	variant uint8
	wide    int
	typ     Type
	rule    Rule
	via     func(float32) float32
}{
	{"nf4", NF4, 0, 64, F32, Rule{Over, 1, 1}, nil},
	{"fp4", FP4, 0, 64, F32, Rule{Over, 1, 1}, nil},
	{"int8", Int8, Times127, 256, F32, Rule{Over, 1, 1}, viaF16},
	{"packed4-bf16", Int4, DivideBF16, 128, BF16, Rule{OverOr, 7.5, 1}, nil},
	{"packed4-fp16", Int4, DivideF16, 128, F16, Rule{OverOr, 7.5, 1}, viaF16},
	{"packed4-fp32", Int4, Divide, 128, F32, Rule{OverOr, 7.5, 1}, nil},
	{"packed8-bf16", UInt8, DivideBF16, 256, BF16, Rule{OverOr, 127.5, 1}, nil},
	{"packed8-fp16", UInt8, DivideF16, 256, F16, Rule{OverOr, 127.5, 1}, viaF16},
	{"packed8-fp32", UInt8, Divide, 256, F32, Rule{OverOr, 127.5, 1}, nil},
	{"naive8-bf16", Int8, DivideBF16, 256, BF16, Rule{OverOr, 127.5, 1}, nil},
	{"naive8-fp16", Int8, DivideF16, 256, F16, Rule{OverOr, 127.5, 1}, viaF16},
	{"naive8-fp32", Int8, Divide, 256, F32, Rule{OverOr, 127.5, 1}, nil},
	{"nvfp4-bf16", NVFP4, Divide, 16, E4M3, Rule{GlobalBF16, 6, 0}, nil},
	{"nvfp4-fp16", NVFP4, Divide, 16, E4M3, Rule{GlobalF16, 6, 0}, viaF16},
	{"nvfp4-fp32", NVFP4, Divide, 16, E4M3, Rule{Global, 6, 0}, nil},
	{"mxfp4-bf16", MXFP4Pairs, Divide, 32, E8M0, Rule{Power, 1, 1}, nil},
	{"mxfp4-fp16", MXFP4Pairs, Divide, 32, E8M0, Rule{Power, 1, 1}, viaF16},
	{"mxfp4-fp32", MXFP4Pairs, Divide, 32, E8M0, Rule{Power, 1, 1}, nil},
}

// zeroInF16 has scales that were too small for binary16 on their way.
const zeroInF16 = "mxfp4-fp16"

func viaF16(x float32) float32 { return half.FromF16(f16(x)) }

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	p, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestApartGoldens: of what libraries make codes follow wholly, and scales by the rule that is found.
func TestApartGoldens(t *testing.T) {
	raw := readFile(t, "weights.bf16")
	for _, g := range apartGoldens {
		t.Run(g.name, func(t *testing.T) {
			x := make([]float32, len(raw)/2)
			for i := range x {
				if x[i] = half.FromBF16(le.Uint16(raw[2*i:])); g.via != nil {
					x[i] = g.via(x[i])
				}
			}
			codes, stored := readFile(t, "apart/"+g.name+".codes"), readFile(t, "apart/"+g.name+".scales")
			if g.rule.Global == 0 {
				g.rule.Global = F32.value(le.Uint32(readFile(t, "apart/"+g.name+".global")))
			}
			q := Quantiser{Format: g.format}
			s := &q.Scales
			*s = Scales{Type: g.typ, Rows: 16, Cols: 256, Tall: 1, Wide: g.wide,
				Rule: Rule{g.rule.Kind, g.rule.Levels, g.rule.Global}}
			switch s.Rule.Kind {
			case Over, OverOr:
				s.Rule.Levels = 1
			case Power:
			default:
				s.Rule.Kind = Global
			}
			for p := stored; len(p) > 0; p = p[s.Type.size():] {
				s.Values = append(s.Values, s.Type.value(get(p[:s.Type.size()])))
			}
			q, share, err := Fits(q, codes, x)
			if err != nil || q.Variant != g.variant || share != 1 {
				t.Errorf("variant %d: %v of the codes follow, want all by %d: %v", q.Variant, share, g.variant, err)
			}
			q, share, err = FitsScales(q, stored, x)
			if err != nil || share != 1 && g.name != zeroInF16 {
				t.Errorf("%+v: %v of the scales follow, want all: %v", q.Scales.Rule, share, err)
			}
			q.Scales.Rule = g.rule // another one may tell as much of so few
			var left Streams
			if err := q.Differ(&left, codes, x); err != nil || left.bytes() > 0 && g.name != zeroInF16 {
				t.Errorf("%d bytes are left: %v", left.bytes(), err)
			}
			restores(t, &q, &left, codes, x)
			of := Quantiser{Format: ScalesOf, Scales: q.Scales}
			of.Scales.Rows, of.Scales.Cols = len(x)/g.wide, g.wide
			if err := of.Differ(&left, stored, x); err != nil || left.bytes() > 0 && g.name != zeroInF16 {
				t.Errorf("%d bytes of scales are left: %v", left.bytes(), err)
			}
			restores(t, &of, &left, stored, x)
		})
	}
}

// TestCodeTables: codes are those of the nearest numbers, at and next to every bound, and between.
func TestCodeTables(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	for k, table := range []*codeTable{tableNF4, tablesFP[0], tablesFP[1]} {
		var v []float32
		for i, x := range table.values {
			v = append(v, x)
			if i < 15 {
				v = append(v, (x+table.values[i+1])/2)
			}
		}
		for _, x := range v {
			v = append(v, math.Nextafter32(x, 2), math.Nextafter32(x, -2))
		}
		for range 300_000 {
			v = append(v, float32(r.NormFloat64()/3), math.Float32frombits(r.Uint32()))
		}
		v = append(v, inf, -inf, nan, 0, math.Float32frombits(1<<31))
		codes := make([]byte, len(v))
		table.all(codes, v)
		for i, x := range v {
			want := 0
			for want < 15 && x > (table.values[want]+table.values[want+1])/2 {
				want++
			}
			if codes[i] != table.codes[want] {
				t.Fatalf("table %d: %v is %d, want %d", k, x, codes[i], table.codes[want])
			}
		}
	}
}

// TestE2M1: numbers of four bits are the nearest, of two as near those with even codes, and keep signs.
func TestE2M1(t *testing.T) {
	for c := range byte(7) {
		a, b := twiceE2M1[c]/2, twiceE2M1[c+1]/2
		middle := (a + b) / 2
		for v, want := range map[float32]byte{math.Nextafter32(a, 9): c, middle: c + c&1, b: c + 1,
			math.Nextafter32(middle, 0): c, math.Nextafter32(middle, 9): c + 1} {
			if e2m1Even(v) != want || e2m1Even(-v) != want|8 {
				t.Errorf("%v is %d, and negative %d, want %d", v, e2m1Even(v), e2m1Even(-v), want)
			}
		}
	}
	for v, want := range map[float32]byte{0: 0, math.Float32frombits(1 << 31): 0, inf: 7, -inf: 15, 1e9: 7} {
		if e2m1Even(v) != want {
			t.Errorf("%v is %d", v, e2m1Even(v))
		}
	}
	if e2m1Even(nan) != 0 {
		t.Error("what is no number is not 0")
	}
}

// TestTableOfNoNumbers: what is no number has the code of -1, in all tables and variants.
func TestTableOfNoNumbers(t *testing.T) {
	for _, c := range []struct {
		f       Format
		variant uint8
		want    byte
	}{{NF4, 0, 0}, {FP4, 0, 11}, {FP4, 1, 11}} {
		q := Quantiser{Format: c.f, Variant: c.variant, Scales: Scales{Rows: 1, Cols: 8, Tall: 1, Wide: 8,
			Rule: Rule{Kind: Over, Levels: 1, Global: 1}}}
		negative := math.Float32frombits(0xffc12345)
		var s Streams
		p, err := q.Restore(nil, &s, []float32{nan, negative, -1, 1, nan, 0.5, negative, -1})
		if err != nil {
			t.Fatal(err)
		}
		codes := make([]byte, 8)
		c.f.unpackPairs(codes, p)
		for _, i := range []int{0, 1, 2, 4, 6, 7} {
			if codes[i] != c.want {
				t.Errorf("%v, variant %d: code %d of element %d, want %d", c.f, c.variant, codes[i], i, c.want)
			}
		}
	}
}
