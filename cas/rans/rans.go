// Package rans is an entropy coder: it spends log2(1/p) bits on a byte whose share of all bytes is p, also
// where that is less than one bit. It is rANS, asymmetric numeral systems of ranges (Duda 2013, arXiv
// 1311.2540), static and of order 0. Shares are counted in 4096ths.
//
// Each step of a state depends on the step before. So 64 states take turns (Giesen 2014, arXiv 1402.3392), to
// use the width of the processor; CRAM 3.1 has 32. Where so little is coded that the states themselves count
// there are 32, 16 or 4.
//
// A stream of s states is
//
//	 0 4s  the states that the decoder begins with, 4 bytes each, from 2^15 to 2^31 - 1
//	4s     words of 2 bytes
//
// Integers are little-endian. A stream holds runs of bytes. Of each run the decoder has to know the length
// and how often, among 4096, each of the 256 values occurs (Freqs). Byte i of a run belongs to state i mod s.
// Let start(v) be the sum of the frequencies of the values below v. Of a state x the byte is the value v for
// which
//
//	start(v) <= x mod 4096 < start(v) + freq(v)
//
// The state then becomes freq(v) * (x / 4096) + x mod 4096 - start(v). If that is below 2^15, it becomes
// 65536 times that plus the next word. The states go from one run to the next as they are. After the last run
// every state is 2^15 and no word is left, which is a checksum of a kind at no cost. The encoder does all of
// it backwards.
//
// Frequencies are stored apart from the stream, as bits, the lowest bit of a byte first:
//
//	3 bits   k
//	         for each value from 0 on, until the frequencies add up to 4096: the frequency less that of the
//	         value before (0 of the first), zigzag-coded, as a number of order k; and after a frequency of
//	         zero how many more zeros follow, as a number of order 0
//	         zeros to the end of the byte
//
// A number n of order k (Exp-Golomb coding; Teuhola 1978) is as many zeros as n >> k plus 1 has bits below
// its highest, a one, those bits, the lowest first, and the k lowest bits of n. Neighbouring values mostly
// occur about as often.
package rans

import (
	"encoding/binary"
	"errors"
)

// How many states a stream has. No kernel has LeastLanes.
const (
	ManyLanes  = 64
	SomeLanes  = 32
	FewLanes   = 16
	LeastLanes = 4
)

const (
	probBits = 12
	probs    = 1 << probBits
	minState = 1 << 15
	endState = 1 << 31
)

var (
	errEnds     = errors.New("rans: the stream ends early")
	errTrailing = errors.New("rans: the stream does not end where it should")

	le = binary.LittleEndian
)

// Lanes is how many states are to code n bytes in size bytes: more states are faster. They add some per cent
// at most.
func Lanes(n int, size float64) int {
	switch {
	case size > 12<<10:
		return ManyLanes
	case size > 2<<10:
		return SomeLanes
	case n > 8<<10:
		return FewLanes
	}
	return LeastLanes
}
