package quant

import (
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
