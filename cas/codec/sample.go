package codec

import "math"

const (
	samples   = 16
	sampleLen = 512
	// flatBits is the order-0 entropy, in bits a byte, from which nothing is to be had: 1/32 of 8 bits is 0.25.
	flatBits = 7.8
)

// looksRandom tells from a sample, 8 KiB spread over raw, whether its bytes are so evenly distributed that an entropy
// coder gains less than 1/32. Such bytes are quantised, compressed or random, and seldom repeat within one chunk: looking
// for matches as well would cost many times this sample.
func looksRandom(raw []byte) bool {
	if len(raw) < samples*sampleLen {
		return false // costs little to try
	}
	// Four tables: increments of one counter in a row would wait for each other.
	var t [4][256]uint32
	stride := (len(raw) - sampleLen) / (samples - 1)
	for i := range samples {
		p := raw[i*stride:][:sampleLen]
		for ; len(p) >= 4; p = p[4:] {
			t[0][p[0]]++
			t[1][p[1]]++
			t[2][p[2]]++
			t[3][p[3]]++
		}
	}
	const n = samples * sampleLen
	var sum float64
	var used int
	for v := range 256 {
		c := t[0][v] + t[1][v] + t[2][v] + t[3][v]
		if c > 0 {
			used++
			sum += float64(c) * math.Log2(float64(c))
		}
	}
	// A sample's entropy falls short of the source's by about (used-1)/2n nats (Miller, 1955).
	bits := math.Log2(n) - sum/n + float64(used-1)/(2*n)*math.Log2E
	return bits > flatBits
}
