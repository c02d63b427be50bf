package rans

import "fmt"

// table says what a state stands for by its remainder modulo 4096: bits 0-11 the value's frequency, 12-23 how
// far the remainder is past the value's start, 24-31 the value.
type table [probs + 64]uint32 // the kernel that fills it writes up to 63 entries past the end

// fillPortable makes t the table of f, which adds up to 4096. No frequency is 4096: such a run is not coded.
func (t *table) fillPortable(f *Freqs) {
	at := 0
	for v, n := range f {
		e := uint32(v)<<24 | uint32(n)
		for i := range t[at : at+int(n)] {
			t[at+i] = e + uint32(i)<<probBits
		}
		at += int(n)
	}
}

// Decoder reads a stream. Its zero value has none.
type Decoder struct {
	// Read is what the caller reads once a run is decoded, and Written where it writes: the processor fetches
	// both meanwhile. Either may be empty.
	Read, Written []byte

	x     []uint32
	words []byte // what is left of them
	table table
	xs    [ManyLanes]uint32
	tail  [4 * ManyLanes]byte // words, and zeros behind them
}

// Init begins a stream of so many states.
func (d *Decoder) Init(stream []byte, lanes int) error {
	if lanes != LeastLanes && lanes != FewLanes && lanes != SomeLanes && lanes != ManyLanes {
		return fmt.Errorf("rans: a stream of %d bytes, %d states", len(stream), lanes)
	}
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

// Reset leaves d without a stream.
func (d *Decoder) Reset() { d.x, d.words = d.xs[:0], nil }

// Any reports whether d has a stream.
func (d *Decoder) Any() bool { return len(d.x) > 0 }

// End returns nil if the stream ended where its runs did.
func (d *Decoder) End() error {
	for _, x := range d.x {
		if x != minState {
			return errTrailing
		}
	}
	if len(d.words) != 0 {
		return errTrailing
	}
	return nil
}

// Run fills dst with the next run, of frequencies f. The decoder must have a stream.
func (d *Decoder) Run(dst []byte, f *Freqs) error {
	d.table.fill(f)
	rest, err := d.steps(dst)
	if err != nil {
		return err
	}
	return d.runPortable(rest)
}

// runPortable decodes what is left of a run, from a step of all states on.
func (d *Decoder) runPortable(dst []byte) error {
	t := (*[probs]uint32)(d.table[:])
	for lanes := len(d.x); len(dst) >= lanes && len(d.words) >= 2*lanes+8; dst = dst[lanes:] {
		at := 0
		for i := 0; i+4 <= lanes; i += 4 { // with one load: else each waits for the place of the next
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
	n := (x - minState) >> 31 // a branch would be mispredicted
	return byte(e >> 24), x<<(16*n&31) | word&-n, n
}
