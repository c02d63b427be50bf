package codec

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
)

// rANS: an entropy coder that spends log2(1/p) bits on a byte that has the share p of all, be that less than one: asymmetric
// numeral systems of ranges (Duda 2013, arXiv 1311.2540), static, of order 0. Shares are counted in 4096ths. To use the width
// of the processor, and since each step of a state waits for the one before, 64 states take turns (Giesen 2014, arXiv
// 1402.3392), as 32 do in CRAM 3.1; or 32, 16 or 4 where so little is coded that the states themselves count.
//
// A stream of s states is
//
//	 0 4s  the states that the decoder begins with, 4 bytes each, from 2^15 to 2^31 - 1
//	4s     words of 2 bytes
//
// and holds runs of bytes, each of a length and with a frequency for each of the 256 values that the decoder knows from
// elsewhere; the frequencies of one run add up to 4096. Byte i of a run is that of state i mod s. Of a state x it is the
// value s of which start(s) <= x mod 4096 < start(s) + freq(s), where start(s) is the sum of the frequencies of lesser values.
// The state is then set to freq(s) * (x / 4096) + x mod 4096 - start(s) and, if that is below 2^15, to 65536 times that plus
// the next word. The states go from one run to the next as they are. After the last run every state is 2^15, and no word is
// left: that much of a checksum comes for nothing.
//
// The encoder does all of it backwards.
const (
	manyLanes  = 64
	someLanes  = 32
	fewLanes   = 16
	leastLanes = 4 // no kernel has so few

	probBits = 12
	probs    = 1 << probBits
	minState = 1 << 15
	endState = 1 << 31
)

// freqs are how often each value occurs among 4096.
type freqs [256]uint16

// ransTable says what a state stands for by its remainder modulo 4096: bits 0-11 the value's frequency, 12-23 by how much
// the remainder is past the value's start, 24-31 the value.
type ransTable [probs + 64]uint32 // the kernel that fills it writes up to 63 past the end

var errRans = errors.New("rans: the stream does not end where it should")

// tablePortable makes the table of f, which adds up to 4096. No frequency is 4096: that takes no coding.
func tablePortable(t *ransTable, f *freqs) {
	at := 0
	for v, n := range f {
		e := uint32(v)<<24 | uint32(n)
		for i := range t[at : at+int(n)] {
			t[at+i] = e + uint32(i)<<probBits
		}
		at += int(n)
	}
}

// ransDecoder reads a stream.
type ransDecoder struct {
	x     []uint32
	words []byte // what is left of them
	raw   []byte // what is read once a run is decoded: the processor fetches it meanwhile
	out   []byte // likewise what is written
	table ransTable
	xs    [manyLanes]uint32
	tail  [4 * manyLanes]byte // words, and zeros behind them
}

// init begins a stream of so many states.
func (d *ransDecoder) init(stream []byte, lanes int) error {
	if len(stream) < 4*lanes || len(stream)%2 != 0 {
		return errEnds
	}
	d.x = d.xs[:lanes]
	for i := range d.x {
		d.x[i] = le.Uint32(stream[4*i:])
		if d.x[i] < minState || d.x[i] >= endState {
			return fmt.Errorf("rans: state %#x", d.x[i])
		}
	}
	d.words = stream[4*lanes:]
	return nil
}

// end says whether the stream ended where its runs did.
func (d *ransDecoder) end() error {
	for _, x := range d.x {
		if x != minState {
			return errRans
		}
	}
	if len(d.words) != 0 {
		return errRans
	}
	return nil
}

// run fills dst with the next run, of frequencies f.
func (d *ransDecoder) run(dst []byte, f *freqs) error {
	makeTable(&d.table, f)
	rest, err := d.steps(dst)
	if err != nil {
		return err
	}
	return d.runPortable(rest)
}

// runPortable decodes what is left of a run at a step of all states.
func (d *ransDecoder) runPortable(dst []byte) error {
	t := (*[probs]uint32)(d.table[:])
	for lanes := len(d.x); len(dst) >= lanes && len(d.words) >= 2*lanes+8; dst = dst[lanes:] {
		at := 0
		for i := 0; i+4 <= lanes; i += 4 { // their words with one load: the next one's place would be waited for
			o, xs := (*[4]byte)(dst[i:]), (*[4]uint32)(d.x[i:])
			words := le.Uint64(d.words[at:])
			var n0, n1, n2, n3 uint32
			o[0], xs[0], n0 = decodeOne(t, xs[0], uint32(words&0xffff))
			words >>= 16 * n0 & 63
			o[1], xs[1], n1 = decodeOne(t, xs[1], uint32(words&0xffff))
			words >>= 16 * n1 & 63
			o[2], xs[2], n2 = decodeOne(t, xs[2], uint32(words&0xffff))
			words >>= 16 * n2 & 63
			o[3], xs[3], n3 = decodeOne(t, xs[3], uint32(words&0xffff))
			at += int(2 * (n0 + n1 + n2 + n3))
		}
		d.words = d.words[at:]
	}
	for i := range dst {
		var word uint32
		if len(d.words) >= 2 {
			word = uint32(le.Uint16(d.words))
		}
		x := &d.x[i%len(d.x)]
		var n uint32
		if dst[i], *x, n = decodeOne(t, *x, word); 2*int(n) > len(d.words) {
			return errEnds
		}
		d.words = d.words[2*n:]
	}
	return nil
}

// decodeOne returns the byte of state x, the next state, and whether it took the word: 1 or 0.
func decodeOne(t *[probs]uint32, x, word uint32) (byte, uint32, uint32) {
	e := t[x%probs]
	x = e%probs*(x/probs) + e>>probBits%probs
	n := (x - minState) >> 31 // asking would cost mispredictions
	return byte(e >> 24), x<<(16*n&31) | word&-n, n
}

// ransCode is how the encoder divides by the frequency of each value, by way of multiplication (Alverson 1991; Giesen's
// ryg_rans): the quotient of x is x * rcp >> 32 >> shift, and the new state x + bias + quotient * (4096 - freq). Bits 0-31 are
// rcp, 32-36 shift, 37-49 bias and 51-62 freq.
type ransCode [256]uint64

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

// init sets the codes of set, which are the values that f has. The others' are not used.
func (c *ransCode) init(f *freqs, set *values) {
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

// ransEncoder writes a stream, the last run first, and each from its end.
type ransEncoder struct {
	x    []uint32
	buf  []byte // filled from the end
	at   int    // in buf, of the word put last
	out  []byte // what is written once all is coded: the processor fetches it meanwhile
	code ransCode
	set  values // that code is of
	xs   [manyLanes]uint32
}

// reset begins a stream of so many states and of n bytes coded at most.
func (e *ransEncoder) reset(n, lanes int) {
	if n = 4*lanes + 2*n + 2; len(e.buf) < n {
		e.buf = make([]byte, n)
	}
	e.at = len(e.buf)
	e.x = e.xs[:lanes]
	for i := range e.x {
		e.x[i] = minState
	}
}

// run puts src, whose values all have frequencies above zero, before what was put already.
func (e *ransEncoder) run(src []byte, f *freqs) {
	e.set = f.values()
	e.code.init(f, &e.set)
	whole := len(src) / len(e.x) * len(e.x)
	e.step(src[whole:])
	e.steps(src[:whole])
}

// stepsPortable puts steps of all states.
func (e *ransEncoder) stepsPortable(src []byte) {
	for n := len(e.x); len(src) > 0; src = src[:len(src)-n] {
		e.step(src[len(src)-n:])
	}
}

// step puts a byte of each of the first states.
func (e *ransEncoder) step(src []byte) {
	at, buf, xs := e.at, e.buf, e.x[:len(src)]
	for i := len(src) - 1; i >= 0; i-- {
		x, c := xs[i], e.code[src[i]]
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

// end returns the stream, which is valid until the next reset.
func (e *ransEncoder) end() []byte {
	e.at -= 4 * len(e.x)
	for i, x := range e.x {
		le.PutUint32(e.buf[e.at+4*i:], x)
	}
	return e.buf[e.at:]
}
