package recipes

// finite leaves out what says nothing of the others: the places where the target, or a candidate, has what is no
// finite number, and, from of, the candidates that have such in most places.
func finite(want []float32, x [][]float32) (_ []float32, _ [][]float32, of []int) {
	is := func(v float32) bool { return v-v == 0 }
	good, finite := make([]bool, len(want)), 0
	for i, v := range want {
		if good[i] = is(v); good[i] {
			finite++
		}
	}
	all := finite == len(want)
	for k, p := range x {
		n := 0
		for i, v := range p {
			if good[i] && is(v) {
				n++
			}
		}
		if all = all && n == len(p); n > finite/2 {
			of = append(of, k)
		}
	}
	if all {
		return want, x, of
	}
	for _, k := range of {
		for i, v := range x[k] {
			good[i] = good[i] && is(v)
		}
	}
	pick := func(p []float32) (q []float32) {
		for i, v := range p {
			if good[i] {
				q = append(q, v)
			}
		}
		return q
	}
	some := make([][]float32, len(x))
	for k, p := range x {
		some[k] = pick(p)
	}
	return pick(want), some, of
}

// numbersOf are numbers of the target, and those of the candidates.
type numbersOf struct {
	want []float32
	x    [][]float32
}

// spread takes at most n numbers, from all over.
func spread(want []float32, x [][]float32, n int) numbersOf {
	step := max(1, len(want)/n)
	pick := func(p []float32) (q []float32) {
		for i := 0; i < len(p) && len(q) < n; i += step {
			q = append(q, p[i])
		}
		return q
	}
	s := numbersOf{want: pick(want)}
	for _, p := range x {
		s.x = append(s.x, pick(p))
	}
	return s
}
