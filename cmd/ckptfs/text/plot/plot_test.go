package plot

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"ckptfs/cas/golden"
)

// curve is f at n positions.
func curve(n int, f func(x float64) float64) Curve {
	c := Curve{First: "1", Last: "n"}
	for i := range n {
		c.X = append(c.X, float64(i))
		c.Y = append(c.Y, f(float64(i)))
	}
	return c
}

var (
	nan = math.NaN()
	inf = math.Inf(1)
)

func TestGolden(t *testing.T) {
	var b strings.Builder
	for _, tc := range []struct {
		name        string
		c           Curve
		width, rows int
	}{
		{"a loss", curve(200, func(x float64) float64 { return 0.3 + 2/(1+x/10) }), 60, 8},
		{"a wave", curve(101, func(x float64) float64 { return math.Sin(x / 8) }), 60, 6},
		{"gaps", Curve{X: []float64{0, 1, 2, 3, 4, 5, 6}, Y: []float64{1, 2, nan, 3, inf, 2, 1},
			First: "10", Last: "16"}, 40, 4},
		{"one value", Curve{X: []float64{7}, Y: []float64{0.5}, First: "7", Last: "7"}, 40, 4},
		{"all equal", curve(5, func(float64) float64 { return -2 }), 40, 4},
		{"uneven steps", Curve{X: []float64{0, 1, 100}, Y: []float64{0, 1, 0}, First: "0", Last: "100"},
			40, 4},
		{"numbers at the end of what there is", Curve{X: []float64{0, 1},
			Y: []float64{-math.MaxFloat64, math.MaxFloat64}, First: "a", Last: "b"}, 40, 4},
		{"a narrow terminal", curve(9, func(x float64) float64 { return x * 1e9 }), 5, 2},
	} {
		b.WriteString("== " + tc.name + "\n")
		for _, line := range Draw(tc.c, tc.width, tc.rows) {
			if n := utf8.RuneCountInString(line); n > max(tc.width, 20) {
				t.Errorf("%s: %d characters: %s", tc.name, n, line)
			}
			b.WriteString(line + "\n")
		}
	}
	golden.Same(t, "curves.golden", b.String())
}

func TestNothingToDraw(t *testing.T) {
	for _, ys := range [][]float64{nil, {nan}, {inf, -inf, nan}} {
		if lines := Draw(Curve{X: make([]float64, len(ys)), Y: ys}, 80, 8); lines != nil {
			t.Errorf("%v: %q", ys, lines)
		}
	}
}

// No peak of many values is lost, whichever column it falls into, and the curve has no gap.
func TestPeaks(t *testing.T) {
	const n = 50_000
	for _, peak := range []int{0, 1, 777, 25_000, n - 2, n - 1} {
		c := curve(n, func(x float64) float64 {
			if int(x) == peak {
				return 1
			}
			return 0
		})
		lines := Draw(c, 80, 10)
		if !strings.ContainsFunc(lines[0], func(r rune) bool { return r > 0x2800 && r < 0x2900 }) {
			t.Errorf("no peak at %d:\n%s", peak, strings.Join(lines, "\n"))
		}
		bottom := strings.TrimRight(lines[9], " ")
		if utf8.RuneCountInString(bottom) < 79 || strings.Count(bottom, " ") > 2 {
			t.Errorf("the bottom has gaps: %q", bottom)
		}
	}
}

// Whatever is drawn lies within the canvas.
func FuzzDraw(f *testing.F) {
	f.Add(1.0, 2.0, 3.0, 80, 8)
	f.Add(nan, inf, 0.0, 1, 1)
	f.Add(1e300, -1e308, 1e308, 12, 3)
	f.Add(0.0, math.SmallestNonzeroFloat64, 0.0, 40, 2)
	f.Fuzz(func(t *testing.T, a, b, c float64, width, rows int) {
		width, rows = width&255, rows&15+1
		for _, line := range Draw(Curve{X: []float64{0, 1, 5}, Y: []float64{a, b, c}}, width, rows) {
			if !utf8.ValidString(line) {
				t.Errorf("%q", line)
			}
		}
	})
}
