package rans

import (
	"math/bits"
	"sync"
)

// codes is how the encoder divides by the frequency of each value, by multiplication (Alverson 1991; Giesen's
// ryg_rans). The quotient of x is x * rcp >> 32 >> shift, and the new state x + bias + quotient * (4096 -
// freq). Bits 0-31 are rcp, 32-36 shift, 37-49 bias and 51-62 freq.
type codes [256]uint64

const (
	shiftAt = 32
	biasAt  = 37
	freqAt  = 51
)

// divisors are the codes of frequencies, of a value that starts at 0.
var divisors = sync.OnceValue(func() *[probs]uint64 {
	var d [probs]uint64
	d[1] = 1<<32 - 1 | (probs-1)<<biasAt | 1<<freqAt // x * (2^32 - 1) >> 32 is x - 1
	for n := uint64(2); n < probs; n++ {
		shift := uint64(bits.Len64(n-1)) - 1
		d[n] = (1<<(shift+32)+n-1)/n | shift<<shiftAt | n<<freqAt
	}
	return &d
})

// init sets the codes of the values in set, which are those that f has. The others are not used.
func (c *codes) init(f *Freqs, set *values) {
	of, start := divisors(), uint64(0)
	for i, m := range set {
		for ; m != 0; m &= m - 1 {
			v := 64*i + bits.TrailingZeros64(m)
			n := f[v&255]
			c[v&255] = of[n%probs] + start<<biasAt
			start += uint64(n)
		}
	}
}

// Encoder writes a stream, the last run first, and each run from its end.
type Encoder struct {
	// Written is what the caller writes once all is coded: the processor fetches it meanwhile. It may be
	// empty.
	Written []byte

	x     []uint32
	buf   []byte // filled from the end
	at    int    // in buf, of the word put last
	codes codes
	set   values // that codes is of
	xs    [ManyLanes]uint32
}

// Reset begins a stream of so many states, to which n bytes at most are put.
func (e *Encoder) Reset(n, lanes int) {
	if n = 4*lanes + 2*n + 2; len(e.buf) < n {
		e.buf = make([]byte, n)
	}
	e.at = len(e.buf)
	e.x = e.xs[:lanes]
	for i := range e.x {
		e.x[i] = minState
	}
}

// Run puts src, whose values all have frequencies above zero, ahead of what was put before.
func (e *Encoder) Run(src []byte, f *Freqs) {
	e.set = f.values()
	e.codes.init(f, &e.set)
	whole := len(src) / len(e.x) * len(e.x)
	e.step(src[whole:])
	e.steps(src[:whole])
}

// stepsPortable puts steps of all states.
func (e *Encoder) stepsPortable(src []byte) {
	for n := len(e.x); len(src) > 0; src = src[:len(src)-n] {
		e.step(src[len(src)-n:])
	}
}

// step puts a byte of each of the first states.
func (e *Encoder) step(src []byte) {
	at, buf, xs := e.at, e.buf, e.x[:len(src)]
	for i := len(src) - 1; i >= 0; i-- {
		x, c := xs[i], e.codes[src[i]]
		n := uint32(c >> freqAt)
		le.PutUint16(buf[at-2:], uint16(x))
		out := (n<<(31-probBits) - 1 - x) >> 31 // 1 if x is that or above
		at -= int(2 * out)
		x >>= 16 * out & 31
		q := uint32(uint64(x) * (c & (1<<32 - 1)) >> 32 >> (c >> shiftAt % 32))
		xs[i] = x + uint32(c>>biasAt)%(2*probs) + q*(probs-n)
	}
	e.at = at
}

// End returns the stream, which is valid until the next Reset.
func (e *Encoder) End() []byte {
	e.at -= 4 * len(e.x)
	for i, x := range e.x {
		le.PutUint32(e.buf[e.at+4*i:], x)
	}
	return e.buf[e.at:]
}
