package codec

import (
	"math"
	"math/bits"
)

// counts is how often each value occurs in a part, or about how often. The frequencies of rANS come of it, so that no value
// that occurs may have none.
type counts [256]uint32

const (
	line = 64 // bytes, of which one in eight is looked at
	// perSample is how many bytes there must be, for each value that occurs and each time that the sample goes into them but
	// once, so that what the frequencies of a sample cost more than those of all is 1/2048 of the part at most, or of a long
	// one 1/1024: a sample of m makes each byte (values-1)/2m nats longer than it need be (Miller, 1955).
	perSample = 184
	longPart  = 8 << 10
	// minEighth is the length from which an eighth has lines enough that what comes in runs is not missed.
	minEighth = 32 << 10
	// minRandom is the length from which a quarter tells what is random.
	minRandom = 2048
)

// count sets c to how often the values occur in p: the bytes of an eighth, a quarter or half of the lines are taken for all where
// that is exact enough. It says whether p is as good as random: then c has all values alike.
func (c *counts) count(p []byte) (random bool) {
	var set values
	whole := p[:len(p)/(8*line)*(8*line)]
	shift := 0
	if len(whole) == 0 {
		*c = counts{}
	} else {
		var t tally
		t.eighth(whole, 0)
		long := 1
		if len(whole) >= longPart {
			long = 2
		}
		for shift = 3; ; shift-- {
			c.sum(&t, shift, &set)
			if ((1<<shift)-1)*perSample*set.len() <= long*len(whole) && (shift < 3 || len(whole) >= minEighth) {
				break
			}
			if shift == 2 && len(whole) >= minRandom && c.sampleBits(len(whole)/4) > randomBits ||
				shift == 3 && len(whole) >= 4*minRandom && c.sampleBits(len(whole)/8) > randomBits+noiseBits {
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

// entropy is the order-0 entropy of c, in bits a byte, how many values it has, and what it adds up to.
func (c *counts) entropy() (bits float64, used, total int) {
	sum, used, total := c.logs()
	if total == 0 {
		return 0, 0, 0
	}
	return (float64(log2(uint32(total))) - float64(sum)/float64(total)) / logOne, used, total
}

// sampleBits estimates the entropy of what a sample of n bytes was counted of: the sample's own falls short of it by about
// (values-1)/2n nats (Miller, 1955).
func (c *counts) sampleBits(n int) float64 {
	bits, used, _ := c.entropy()
	return bits + float64(used-1)/float64(2*n)*math.Log2E
}

// estimate is in how many bytes n bytes of counts c can be stored, frequencies included.
func (c *counts) estimate(n int) float64 {
	if n == 0 {
		return 0
	}
	bits, used, _ := c.entropy()
	return min(float64(n), float64(n)*bits/8+12+0.3*float64(used)) + 1
}

// logsPortable is the sum of k log2 k, of how many counts above 0, and the sum of them.
func (c *counts) logsPortable() (sum uint64, used, total int) {
	for _, k := range c { // of zeros, too: asking would cost mispredictions
		sum += uint64(k) * uint64(log2(k))
		used += int((k | -k) >> 31)
		total += int(k)
	}
	return sum, used, total
}

// logOne is 1 as log2 counts.
const logOne = 1 << 16

// log2 is the logarithm of n > 0, wrong by 0.0009 at most. With floating-point numbers kernel and twin would not be the same.
func log2(n uint32) uint32 {
	z := uint32(bits.LeadingZeros32(n))
	m := n << z << 1 >> 16
	p := m * (logOne - m) >> 16
	return (31-z)<<16 + m + p*(27713-10435*m>>16)>>16
}

// total is what c adds up to.
func (c *counts) total() int {
	var a, b, d, e uint32 // each would wait for itself
	for i := 0; i < len(c); i += 4 {
		a, b, d, e = a+c[i], b+c[i+1], d+c[i+2], e+c[i+3]
	}
	return int(a + b + d + e)
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

// eighth counts one line of every eight of p. Which one changes from each eight to the next, since p may have a period. Of q
// from 0 to 7 each counts others.
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
