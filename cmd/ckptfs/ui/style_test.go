package ui

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// luminance is that of a colour such as #0969da, by WCAG 2.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	out := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		x := float64(n) / 255
		if x <= 0.03928 {
			x /= 12.92
		} else {
			x = math.Pow((x+0.055)/1.055, 2.4)
		}
		out += weight * x
	}
	return out
}

// Texts and what is drawn stand out from what is behind them, light and dark: also on the canvas of a chart,
// which no program for accessibility looks at.
func TestContrast(t *testing.T) {
	css, err := assets.ReadFile("assets/style.css")
	if err != nil {
		t.Fatal(err)
	}
	themes := strings.SplitN(string(css), "@media (prefers-color-scheme: dark)", 2)
	for i, name := range []string{"light", "dark"} {
		theme := strings.SplitN(themes[i], "*", 2)[0]
		colors := map[string]string{}
		for _, m := range regexp.MustCompile(`--(\w+): (#[0-9a-f]{6})`).FindAllStringSubmatch(theme, -1) {
			colors[m[1]] = m[2]
		}
		hold := func(front, back string, least float64) {
			t.Helper()
			if colors[front] == "" || colors[back] == "" {
				t.Fatalf("%s: no colours %s and %s", name, front, back)
			}
			a, b := luminance(t, colors[front]), luminance(t, colors[back])
			if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < least {
				t.Errorf("%s: %s on %s has a contrast of %.2f, not %.1f", name, front, back, ratio, least)
			}
		}
		for _, back := range []string{"back", "panel"} {
			for _, text := range []string{"front", "soft", "link", "good", "warn", "bad"} {
				hold(text, back, 4.5)
			}
		}
		for i := range 8 {
			hold("back", fmt.Sprintf("c%d", i), 4.5) // the pin of a best value
		}
		for i := range 4 {
			hold(fmt.Sprintf("h%d", i), "back", 3)
		}
	}
}
