package cas

import (
	"encoding/hex"
	"errors"
	"testing"
)

// The XXH3-128 of nothing is that of its specification. The others, of lengths that its parts treat apart,
// are the same on all processors, so that what one stores another reads.
func TestXXH3(t *testing.T) {
	p := make([]byte, ChunkSize)
	for i := range p {
		p[i] = byte(i * i >> 3)
	}
	for n, want := range map[int]string{
		0:         "99aa06d3014798d86001c324468d497f",
		3:         "f21da334f2869f1beb5d658bb22f286b",
		8:         "b9294eb533e669c7c819d75bc4dbfb34",
		16:        "a8075b5d1800fbea1d9b37dc2c15579b",
		100:       "a7abadd62d3407216020e54819df9ab7",
		200:       "81e12f842638ff7e426a560d88af4e14",
		1000:      "f0d8526bc9bfc0669fce85b3bb725d4a",
		1100:      "6ece19d406b4b39ba7a4abc95c2531c1",
		65539:     "56f0c8ecfcb35740d5f1f49c4030aff5",
		ChunkSize: "91811e855f4b3d16a9a178d3950e3f2b",
	} {
		x := SumXXH3(p[:n])
		if got := hex.EncodeToString(x[:]); got != want {
			t.Errorf("%d bytes: %s, want %s", n, got, want)
		}
		if err := CheckXXH3(p[:n], x); err != nil {
			t.Error(err)
		}
		if err := CheckXXH3(append([]byte{1}, p[:n]...), x); !errors.Is(err, ErrCorrupt) {
			t.Error(err)
		}
		if x.IsZero() || !(XXH3{}).IsZero() {
			t.Error("zero")
		}
	}
}
