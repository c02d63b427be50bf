package codec

import "math/bits"

// counts is how often each value occurs in a part, or about how often. The frequencies of rANS come of it, so that no value
// that occurs may have none.
type counts [256]uint32

const (
	line = 64 // bytes, of which one in four is looked at
	// perSample is how many bytes there must be, for each value that occurs and each time that the sample goes into them but
	// once, so that what the frequencies of a sample cost more than those of all is 1/2048 of the part at most: a sample of m
	// makes each byte (values-1)/2m nats longer than it need be (Miller, 1955).
	perSample = 184
)

// count sets c to how often the values occur in p: of the bytes of a quarter or of half of the lines taken for all where that
// is exact enough.
func (c *counts) count(p []byte) {
	var set values
	whole := p[:len(p)/(4*line)*(4*line)]
	shift := 0
	if len(whole) == 0 {
		*c = counts{}
	} else {
		var t tally
		t.quarter(whole, 0)
		for shift = 2; ; shift-- {
			c.sum(&t, shift, &set)
			ratio := 1 << shift
			if (ratio-1)*perSample*set.len() <= len(whole) {
				break
			}
			t.quarter(whole, 3-shift)
			if shift == 1 {
				t.quarter(whole, 3)
			}
		}
	}
	for _, v := range p[len(whole):] {
		c[v]++
	}
	if shift == 0 {
		return
	}
	for rest := whole; len(rest) > 0; rest = rest[line:] { // rare values
		if rest = rest[set.holds(rest):]; len(rest) == 0 {
			return
		}
		for _, v := range rest[:line] {
			c[v] = max(c[v], 1)
			set[v/64] |= 1 << (v % 64)
		}
	}
}

// len is how many values c has.
func (c *counts) len() int {
	n := 0
	for _, k := range c {
		n += int((k | -k) >> 31)
	}
	return n
}

// total is what c adds up to.
func (c *counts) total() int {
	n := 0
	for _, k := range c {
		n += int(k)
	}
	return n
}

// values is a set of them.
type values [4]uint64

func (s *values) len() int {
	return bits.OnesCount64(s[0]) + bits.OnesCount64(s[1]) + bits.OnesCount64(s[2]) + bits.OnesCount64(s[3])
}

// holdsPortable says how many lines of p, in bytes, come before one with a value that s lacks.
func (s *values) holdsPortable(p []byte) int {
	for i, v := range p {
		if s[v/64]>>(v%64)&1 == 0 {
			return i / line * line
		}
	}
	return len(p)
}

// tally is counts in the making: eight tables, as increments of one number in a row would wait for each other. It is good for
// maxPlane bytes of one value.
type tally [8][256]uint16

// quarter counts one line of every four of p. Which one changes from each four to the next, since p may have a period. Of q
// from 0 to 3 each counts others.
func (t *tally) quarter(p []byte, q int) {
	for i := uint32(0); len(p) >= 4*line; i, p = i+1, p[4*line:] {
		at := (i*0x9e3779b1>>30 + uint32(q)) % 4 * line
		t.add(p[at : at+line])
	}
}

// add counts p, a multiple of 8 bytes.
func (t *tally) add(p []byte) {
	for ; len(p) >= 8; p = p[8:] {
		v := le.Uint64(p)
		t[0][byte(v)]++
		t[1][byte(v>>8)]++
		t[2][byte(v>>16)]++
		t[3][byte(v>>24)]++
		t[4][byte(v>>32)]++
		t[5][byte(v>>40)]++
		t[6][byte(v>>48)]++
		t[7][byte(v>>56)]++
	}
}

// sumPortable sets c to what t comes to, 1 << shift times, and set to the values that there are.
func (c *counts) sumPortable(t *tally, shift int, set *values) {
	*set = values{}
	for v := range c {
		n := uint32(t[0][v]) + uint32(t[1][v]) + uint32(t[2][v]) + uint32(t[3][v]) + uint32(t[4][v]) + uint32(t[5][v]) + uint32(t[6][v]) + uint32(t[7][v])
		c[v] = n << shift
		if n > 0 {
			set[v/64] |= 1 << (v % 64)
		}
	}
}
