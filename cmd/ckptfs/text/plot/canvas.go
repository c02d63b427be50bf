package plot

// canvas is a grid of dots, eight to a character: two wide and four high, as Unicode's braille patterns have
// them, from U+2800 on.
type canvas struct {
	columns int // characters a line
	rows    int
	cells   []byte // of the pattern, a bit a dot
}

// Dots of a character, across and down.
const (
	across = 2
	down   = 4
)

// dot is the bit of each dot of a character, by line and column.
var dot = [down][across]byte{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}

func newCanvas(columns, rows int) *canvas {
	return &canvas{columns, rows, make([]byte, columns*rows)}
}

// set sets the dot at x from the left and y from the top.
func (c *canvas) set(x, y int) {
	c.cells[y/down*c.columns+x/across] |= dot[y%down][x%across]
}

// column sets the dots of column x from one line to another.
func (c *canvas) column(x, y, to int) {
	for y, to = min(y, to), max(y, to); y <= to; y++ {
		c.set(x, y)
	}
}

// join draws a line from a dot to one to the right of it, without gaps.
func (c *canvas) join(x, y, toX, toY int) {
	at := y
	for i := x; i < toX; i++ {
		// the height halfway to the next column, so that each column has about half of a step
		next := y + ((toY-y)*(2*(i-x)+1))/(2*(toX-x))
		c.column(i, at, next)
		at = next
	}
	c.column(toX, at, toY)
}

// line is a line of characters. Blank ones are spaces, which fonts without braille have, too.
func (c *canvas) line(row int) string {
	out := make([]rune, c.columns)
	for i, b := range c.cells[row*c.columns : (row+1)*c.columns] {
		out[i] = ' '
		if b != 0 {
			out[i] = 0x2800 + rune(b)
		}
	}
	return string(out)
}
