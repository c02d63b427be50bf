package rans

import (
	"math"
	"math/bits"
)

// Counts is how often each value occurs in a part, or about how often. Freqs are made of it, so every value
// that occurs is counted at least once.
type Counts [256]uint32

const (
	// RandomBits is the entropy, in bits a byte, from which coding a part does not pay: 1.5 % of 8 bits is
	// 0.12.
	RandomBits = 7.9

	// line is how many bytes are looked at or passed over together.
	line = 64
	// perSample bounds the sample: for each value that occurs, and each time but one that the sample goes
	// into the part, the part must have so many bytes. The frequencies of a sample then cost 1/2048 of the
	// part more than those of all at most, or 1/1024 of a long part. A sample of m makes each byte
	// (values-1)/2m nats longer than it need be (Miller, 1955).
	perSample = 184
	longPart  = 8 << 10
	// minEighth is the length from which an eighth has enough lines not to miss what comes in runs.
	minEighth = 32 << 10
	// minRandom is the length from which a quarter tells whether a part is random.
	minRandom = 2048
)

// Count sets c to how often the values occur in p, of 256 KiB at most. An eighth, a quarter or half of the
// lines stand for all where that is exact enough. It reports whether p is as good as random: then all values
// are counted alike.
func (c *Counts) Count(p []byte) (random bool) {
	var set values
	whole := p[:len(p)/(8*line)*(8*line)]
	shift := 0
	if len(whole) == 0 {
		*c = Counts{}
	} else {
		var t tally
		t.eighth(whole, 0)
		long := 1
		if len(whole) >= longPart {
			long = 2
		}
		for shift = 3; ; shift-- {
			c.sum(&t, shift, &set)
			if ((1<<shift)-1)*perSample*set.len() <= long*len(whole) &&
				(shift < 3 || len(whole) >= minEighth) {
				break
			}
			if shift == 2 && len(whole) >= minRandom && c.sampleBits(len(whole)/4) > RandomBits ||
				shift == 3 && len(whole) >= 4*minRandom && c.sampleBits(len(whole)/8) > RandomBits+noiseBits {
				for v := range c {
					c[v] = uint32(len(p)/len(c) + 1)
				}
				return true
			}
			for q := 8 >> shift; q < 16>>shift; q++ {
				t.eighth(whole, q)
			}
		}
	}
	for _, v := range p[len(whole):] {
		c[v]++
	}
	if shift == 0 {
		return false
	}
	for rest := whole; len(rest) > 0; rest = rest[line:] { // rare values
		if rest = rest[set.holds(rest):]; len(rest) == 0 {
			break
		}
		for _, v := range rest[:line] {
			c[v] = max(c[v], 1)
			set[v/64] |= 1 << (v % 64)
		}
	}
	return false
}

// Entropy is the order-0 entropy of c, in bits a byte, how many values it has, and the sum of the counts.
func (c *Counts) Entropy() (bits float64, used, total int) {
	sum, used, total := c.logs()
	if total == 0 {
		return 0, 0, 0
	}
	return (float64(log2(uint32(total))) - float64(sum)/float64(total)) / logOne, used, total
}

// sampleBits estimates the entropy of the whole from the counts of a sample of n bytes. The entropy of the
// sample itself falls short of that by about (values-1)/2n nats (Miller, 1955).
func (c *Counts) sampleBits(n int) float64 {
	bits, used, _ := c.Entropy()
	return bits + float64(used-1)/float64(2*n)*math.Log2E
}

// Estimate is how many bytes it takes to store n bytes of counts c, frequencies included.
func (c *Counts) Estimate(n int) float64 {
	if n == 0 {
		return 0
	}
	bits, used, _ := c.Entropy()
	return min(float64(n), float64(n)*bits/8+12+0.3*float64(used)) + 1
}

// logsPortable is the sum of k log2 k over the counts k, how many of them are above 0, and their sum.
func (c *Counts) logsPortable() (sum uint64, used, total int) {
	for _, k := range c { // of zeros, too: a branch would be mispredicted
		sum += uint64(k) * uint64(log2(k))
		used += int((k | -k) >> 31)
		total += int(k)
	}
	return sum, used, total
}

// logOne is 1 as log2 counts.
const logOne = 1 << 16

// log2 is the logarithm of n > 0, wrong by 0.0009 at most. With floating-point numbers kernel and twin would
// differ.
func log2(n uint32) uint32 {
	z := uint32(bits.LeadingZeros32(n))
	m := n << z << 1 >> 16
	p := m * (logOne - m) >> 16
	return (31-z)<<16 + m + p*(27713-10435*m>>16)>>16
}

// total is the sum of the counts.
func (c *Counts) total() int {
	var a, b, d, e uint32 // a single sum would wait for itself
	for i := 0; i < len(c); i += 4 {
		a, b, d, e = a+c[i], b+c[i+1], d+c[i+2], e+c[i+3]
	}
	return int(a + b + d + e)
}

// values is a set of byte values.
type values [4]uint64

func (s *values) len() int {
	return bits.OnesCount64(s[0]) + bits.OnesCount64(s[1]) + bits.OnesCount64(s[2]) + bits.OnesCount64(s[3])
}

// holdsPortable is how many bytes of p, whole lines, come before a line with a value that s lacks.
func (s *values) holdsPortable(p []byte) int {
	for i, v := range p {
		if s[v/64]>>(v%64)&1 == 0 {
			return i / line * line
		}
	}
	return len(p)
}

// tally is counts in the making: eight tables, since increments of one number would wait for each other. A
// table holds 65,535 of one value, so that a part may have 256 KiB.
type tally [8][256]uint16

// eighth counts one line of every eight of p. Which one changes from each eight to the next, since p may have
// a period. Each q from 0 to 7 counts different lines.
func (t *tally) eighth(p []byte, q int) {
	for i := uint32(0); len(p) >= 8*line; i, p = i+1, p[8*line:] {
		at := (i*0x9e3779b1>>29 + uint32(q)) % 8 * line
		t.add(p[at : at+line])
	}
}

// addPortable counts p, a multiple of 8 bytes.
func (t *tally) addPortable(p []byte) {
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

// sumPortable sets c to the sums of t, each 1 << shift times, and set to the values that occur.
func (c *Counts) sumPortable(t *tally, shift int, set *values) {
	*set = values{}
	for v := range c {
		n := uint32(t[0][v]) + uint32(t[1][v]) + uint32(t[2][v]) + uint32(t[3][v]) +
			uint32(t[4][v]) + uint32(t[5][v]) + uint32(t[6][v]) + uint32(t[7][v])
		c[v] = n << shift
		if n > 0 {
			set[v/64] |= 1 << (v % 64)
		}
	}
}
