package cas

import (
	"encoding/hex"
	"errors"
	"testing"
)

// XXH3-128 as the reference program prints it (xxhsum -H2), at lengths that its parts treat apart.
func TestXXH3(t *testing.T) {
	p := make([]byte, ChunkSize)
	for i := range p {
		p[i] = byte(i * i >> 3)
	}
	for n, want := range map[int]string{
		0: "99aa06d3014798d86001c324468d497f",
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
	}
	if (XXH3{}).IsZero() != true || SumXXH3(nil).IsZero() {
		t.Error("zero")
	}
}
