// Package plot draws a curve in braille dots, with its range beside it:
//
//	 2.3 ┤⢇
//	     │⠈⠢⣀
//	0.31 ┤   ⠉⠒⠤⠤⠤⠤⠤⠤⠤⠤⠤
//	      1          300
//
// Of many values the column of a dot shows all from the least to the greatest: no peak is lost. A value that
// is no finite number is a gap: the curve ends before it and begins again after it. Where all values are
// equal the curve lies in the middle.
package plot

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Curve is what is drawn: values over positions, which ascend. First and Last are the ends of the axis below.
type Curve struct {
	X, Y        []float64 // of equal length
	First, Last string
}

// least is how many characters are left for dots, however narrow the terminal is.
const least = 10

// Draw returns the lines of a curve, of at most width characters: rows of dots, and the axis below. nil if no
// value is a finite number.
func Draw(c Curve, width, rows int) []string {
	lo, hi := extent(c.Y)
	if lo > hi {
		return nil
	}
	top, bottom := Number(hi), Number(lo)
	if lo == hi {
		top, bottom = "", ""
	}
	label := max(utf8.RuneCountInString(Number(hi)), utf8.RuneCountInString(Number(lo)))
	dots := newCanvas(max(least, width-label-2), rows)
	draw(dots, c, lo, hi)
	lines := make([]string, 0, rows+1)
	for row := range rows {
		at, tick := "", "│"
		switch {
		case row == 0 && top != "":
			at, tick = top, "┤"
		case row == rows-1 && bottom != "":
			at, tick = bottom, "┤"
		case lo == hi && row == (rows*down-1)/2/down:
			at, tick = Number(lo), "┤"
		}
		line := fmt.Sprintf("%*s %s%s", label, at, tick, dots.line(row))
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return append(lines, axis(c, label+2, dots.columns))
}

// extent is the range of the finite values; lo > hi if there is none.
func extent(ys []float64) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, y := range ys {
		if finite(y) {
			lo, hi = min(lo, y), max(hi, y)
		}
	}
	return lo, hi
}

func finite(y float64) bool { return !math.IsNaN(y) && !math.IsInf(y, 0) }

// draw sets the dots. Each column is drawn once, when the next one begins.
func draw(dots *canvas, c Curve, lo, hi float64) {
	wide, high := dots.columns*across-1, dots.rows*down-1
	first, span := c.X[0], c.X[len(c.X)-1]-c.X[0]
	pen := false // the curve goes on from x, y
	var x, y int
	for i, v := range c.Y {
		if !finite(v) {
			pen = false
			continue
		}
		toX := 0
		if span > 0 {
			toX = int(math.Round((c.X[i] - first) / span * float64(wide)))
		}
		toY := high / 2
		// halves: the difference of two numbers may be infinite, and that of the least ones is none
		if all := hi/2 - lo/2; all > 0 {
			toY = int(math.Round((hi/2 - v/2) / all * float64(high)))
		}
		switch {
		case !pen:
			dots.set(toX, toY)
		case toX == x:
			dots.column(x, y, toY)
		default:
			dots.join(x, y, toX, toY)
		}
		pen, x, y = true, toX, toY
	}
}

// axis is the line below: the first position at the left, the last at the right.
func axis(c Curve, indent, columns int) string {
	if c.First == c.Last {
		return strings.Repeat(" ", indent) + c.First
	}
	gap := columns - utf8.RuneCountInString(c.First) - utf8.RuneCountInString(c.Last)
	return strings.Repeat(" ", indent) + c.First + strings.Repeat(" ", max(1, gap)) + c.Last
}

// Number is a value in few characters: six digits, which tell values of a curve apart. What is no number is
// written as in JSON.
func Number(v float64) string {
	return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(v, 'g', 6, 64), "+"))
}
