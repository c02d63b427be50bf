package rans

// A sample is 16 parts of 256 bytes, spread over the whole.
const (
	Samples   = 16
	SampleLen = 256
	// noiseBits is how far a sample of 1 KiB may be off; mostly it is 0.02.
	noiseBits = 0.06
)

// Sample is part i of the sample of p, which is at least as long as the sample.
func Sample(p []byte, i int) []byte {
	return p[(len(p)-SampleLen)/(Samples-1)*i:][:SampleLen]
}

// SampleBits estimates the order-0 entropy of p, in bits a byte, from a sample of 4 KiB. A quarter of that is
// enough where the entropy is above random without doubt: then it is 8. It is 0 for a p that is shorter,
// which costs little to try.
func SampleBits(p []byte, random float64) float64 {
	const n = Samples * SampleLen
	if len(p) < n {
		return 0
	}
	var t tally
	var c Counts
	var used values
	for i := range Samples {
		t.add(Sample(p, i)[:SampleLen/4])
	}
	if c.sum(&t, 0, &used); c.sampleBits(n/4) > random+noiseBits {
		return 8
	}
	for i := range Samples {
		t.add(Sample(p, i)[SampleLen/4:])
	}
	c.sum(&t, 0, &used)
	return c.sampleBits(n)
}
