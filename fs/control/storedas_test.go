package control

import "testing"

func TestStoredAs(t *testing.T) {
	a, b, c := BaseTensor{Path: "a.gguf", Tensor: "w"}, BaseTensor{Path: "b.gguf", Tensor: "w"}, BaseTensor{}
	with := func(b BaseTensor, c float32) BaseTensor { b.Coefficient = float64(c); return b }
	for want, s := range map[string]StoredAs{
		"Q4_K of a.gguf:w, scales 5 %":                    {Op: "quantised", Format: "Q4_K", Scales: 0.05},
		"Q4_K of rope-permuted a.gguf:w, corrections 1 %": {Op: "quantised", Format: "Q4_K", Order: "rope-permuted", Corrections: 0.01},
		"columns 0–2047 of a.gguf:w":                      {Op: "taken", Order: "columns 0–2047"},
		"rope-permuted a.gguf:w":                          {Op: "taken", Order: "rope-permuted"},
		"the same as a.gguf:w":                            {Op: "taken"},
		"rounded from a.gguf:w, 50 % of it":               {Op: "rounded", Share: 0.5},
		"widened from a.gguf:w":                           {Op: "widened"},
		"numbers of a removed file":                       {Op: "taken", Bases: []BaseTensor{c}},
		"parts of a.gguf:w and 2 others":                  {Op: "taken", Bases: []BaseTensor{a, b, {Path: "d.gguf"}}},
		"Q8_0 of parts of a.gguf:w and 1 other":           {Op: "quantised", Format: "Q8_0", Bases: []BaseTensor{a, b}},
		"widened from parts of a.gguf:w and others":       {Op: "widened", Bases: []BaseTensor{a, b}, MoreBases: true},
		"difference from a removed file":                  {Op: "difference", Bases: []BaseTensor{c}},
		"0.7 a.gguf:w + 0.3 b.gguf:w":                     {Op: "combined", Form: "sum", Bases: []BaseTensor{with(b, 0.3), with(a, 0.7)}},
		"a.gguf:w − 0.5 b.gguf:w":                         {Op: "combined", Form: "sum", Bases: []BaseTensor{with(b, -0.5), with(a, 1)}},
		"−0.5 a.gguf:w − b.gguf:w":                        {Op: "combined", Form: "sum", Bases: []BaseTensor{with(a, -0.5), with(b, -1)}},
		"(a.gguf:w + b.gguf:w) / 2":                       {Op: "combined", Form: "mean", Bases: []BaseTensor{with(a, 2), b}},
		"a.gguf:w + 0.3 (b.gguf:w − a.gguf:w)":            {Op: "combined", Form: "lerp", Bases: []BaseTensor{a, with(b, 0.3)}},
		"a.gguf:w − (b.gguf:w − a removed file)":          {Op: "combined", Form: "task", Bases: []BaseTensor{a, with(b, -1), c}},
	} {
		if s.Share == 0 {
			s.Share = 1
		}
		if s.Bases == nil {
			s.Bases = []BaseTensor{a}
		}
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
