package codec

import (
	"bytes"

	"ckptfs/cas/rans"
)

const (
	// flatBits is the order-0 entropy, in bits a byte, from which coding saves less than 1/32, which is 0.25
	// bits of 8.
	flatBits = 7.8
)

// looksRandom tells from a sample whether the bytes of raw are so evenly distributed that an entropy coder
// saves less than 1/32. Such bytes are quantised, compressed or random, and seldom repeat within a chunk.
// Looking for matches as well would take many times as long.
func looksRandom(raw []byte) bool { return rans.SampleBits(raw, flatBits) > flatBits }

// sampleZeros counts the zeros in the sample of p, or in all of p when it is shorter.
func sampleZeros(p []byte) (zeros, of int) {
	if len(p) < rans.Samples*rans.SampleLen {
		return bytes.Count(p, []byte{0}), len(p)
	}
	for i := range rans.Samples {
		zeros += bytes.Count(rans.Sample(p, i), []byte{0})
	}
	return zeros, rans.Samples * rans.SampleLen
}

// repeats tells from two samples of 4 KiB whether raw, of elements of w bytes, repeats itself: whether at one
// element in eight begin 8 bytes, or an element more, that were seen before. Zeros do not count.
func repeats(raw []byte, w int) bool {
	const run = 4 << 10
	var seen [2048]uint32 // by 11 bits of a hash, the next 32
	var places, again int
	for i := range 2 {
		p := raw
		if len(raw) > 2*run {
			p = raw[(len(raw)-run)*i/w*w:][:run]
		} else if i > 0 {
			break
		}
		for at := 0; at <= len(p)-8; at += w {
			v := le.Uint64(p[at:])
			places++
			if uint32(v) == 0 || v>>32 == 0 {
				continue
			}
			v *= 0x9e3779b97f4a7c15
			h, rest := v>>53, uint32(v>>21)
			if seen[h] == rest {
				again++
			}
			seen[h] = rest
		}
	}
	return again > places/8
}
