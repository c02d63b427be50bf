package codec

import (
	"math"
	"sync"
)

const (
	samples   = 16
	sampleLen = 256
	// flatBits is the order-0 entropy, in bits a byte, from which nothing is to be had: 1/32 of 8 bits is 0.25.
	flatBits = 7.8
)

// looksRandom tells from a sample whether the bytes of raw are so evenly distributed that an entropy coder gains less than
// 1/32. Such bytes are quantised, compressed or random, and seldom repeat within one chunk: looking for matches as well
// would cost many times this sample.
func looksRandom(raw []byte) bool { return sampleBits(raw) > flatBits }

// sampleBits estimates the order-0 entropy of p, in bits a byte, from a sample of 4 KiB spread over it. What is shorter
// costs little to try and counts as 0.
func sampleBits(p []byte) float64 {
	if len(p) < samples*sampleLen {
		return 0
	}
	// Four tables: increments of one counter in a row would wait for each other.
	var t [4][256]uint16
	stride := (len(p) - sampleLen) / (samples - 1)
	for i := range samples {
		q := p[i*stride:][:sampleLen]
		for ; len(q) >= 4; q = q[4:] {
			t[0][q[0]]++
			t[1][q[1]]++
			t[2][q[2]]++
			t[3][q[3]]++
		}
	}
	const n = samples * sampleLen
	logs := logTable()
	var sum float64
	var used int
	for v := range 256 {
		c := t[0][v] + t[1][v] + t[2][v] + t[3][v]
		if c > 0 {
			used++
			sum += logs[c]
		}
	}
	// A sample's entropy falls short of the source's by about (used-1)/2n nats (Miller, 1955).
	return math.Log2(n) - sum/n + float64(used-1)/(2*n)*math.Log2E
}

// logTable is c log2 c: taking 256 logarithms would cost as much as counting the sample.
var logTable = sync.OnceValue(func() *[samples*sampleLen + 1]float64 {
	var t [samples*sampleLen + 1]float64
	for c := 1; c < len(t); c++ {
		t[c] = float64(c) * math.Log2(float64(c))
	}
	return &t
})

// repeats tells from two samples of 4 KiB whether raw, of elements of w bytes, says the same more than once: whether one
// in eight of the places where an element begins is followed by 8 bytes, or one element of more, that were seen before.
// Zeros do not count.
func repeats(raw []byte, w int) bool {
	const run = 4 << 10
	var seen [2048]uint64
	var places, again int
	for i := range 2 {
		p := raw
		if len(raw) > 2*run {
			p = raw[(len(raw)-run)*i/w*w:][:run]
		} else if i > 0 {
			break
		}
		for ; len(p) >= 8; p = p[w:] {
			v := le.Uint64(p)
			places++
			if uint32(v) == 0 || v>>32 == 0 {
				continue
			}
			h := &seen[v*0x9e3779b97f4a7c15>>53]
			if *h == v {
				again++
			}
			*h = v
		}
	}
	return again > places/8
}
