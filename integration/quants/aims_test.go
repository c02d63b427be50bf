package quants

// aims are the most that files may take beside what they were made from, in percent of their size, without an
// importance matrix and with one; 0 is none.
var aims = map[string]struct{ plain, importance float64 }{
	"Q8_0":  {plain: 0.3},
	"Q4_0":  {plain: 0.3},
	"Q4_1":  {plain: 0.3},
	"Q5_0":  {plain: 0.3},
	"Q5_1":  {plain: 0.3},
	"MXFP4": {plain: 0.3},

	"Q6_K": {3.2, 3.6},
	"Q5_K": {2.8, 3.7},
	// 4.6 and 5.0 of tensors of some chunks; heads and tables take the rest of the small ones here.
	"Q4_K":   {5.1, 5.9},
	"Q5_K_M": {2.8, 3.7},
	"Q4_K_M": {5.1, 5.9},

	"FP8":            {plain: 0.5},
	"FP8-tensor":     {plain: 0.5},
	"FP8-reciprocal": {plain: 0.5},
	"FP8-block":      {plain: 0.5},

	"NF4":          {plain: 0.3},
	"FP4":          {plain: 0.3},
	"INT8":         {plain: 0.3},
	"W4A16":        {plain: 0.3},
	"W8A16":        {plain: 0.3},
	"W8A8":         {plain: 0.3},
	"NVFP4":        {plain: 0.4},
	"MXFP4-packed": {plain: 0.3},
}

// wantAims fails the test for each of these kinds that takes more than is aimed at; all if none are named.
func (s *store) wantAims(kinds ...string) {
	s.T.Helper()
	named := map[string]bool{}
	for _, k := range kinds {
		named[k] = true
	}
	for _, f := range s.model.files {
		if len(kinds) > 0 && !named[f.Kind] {
			continue
		}
		aim := aims[f.Kind].plain
		if f.Importance {
			aim = aims[f.Kind].importance
		}
		if got := s.percent(f); aim > 0 && got > aim {
			s.T.Errorf("%v takes %.2f %% of its size, want at most %.1f", f, got, aim)
		}
	}
}
