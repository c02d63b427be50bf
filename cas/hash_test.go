package cas

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// The empty input and the 251-byte pattern of length 1024 are vectors of the BLAKE3 specification's
// test_vectors.json.
func TestSum(t *testing.T) {
	p := make([]byte, 1024)
	for i := range p {
		p[i] = byte(i % 251)
	}
	for _, c := range []struct {
		in   []byte
		want string
	}{
		{nil, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
		{p, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
	} {
		if got := Sum(c.in).String(); got != c.want {
			t.Errorf("%d bytes: %s, want %s", len(c.in), got, c.want)
		}
	}
}

func TestParseHash(t *testing.T) {
	h := Sum([]byte("x"))
	got, err := ParseHash(h.String())
	if err != nil || got != h {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", h.String()[1:], h.String() + "0", strings.Repeat("g", 64)} {
		if _, err := ParseHash(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if h.IsZero() || !(Hash{}).IsZero() {
		t.Error("IsZero")
	}
	if !strings.HasPrefix(h.String(), h.Short()) || len(h.Short()) != 12 {
		t.Error("Short")
	}
}

func TestWatermarkBefore(t *testing.T) {
	w := []Watermark{{}, {0, 8}, {1, 0}, {1, 64}, {2, 0}, {10, 8}}
	for i := range w {
		for j := range w {
			if got := w[i].Before(w[j]); got != (i < j) {
				t.Errorf("%v before %v: %v", w[i], w[j], got)
			}
		}
	}
}

func TestChunkError(t *testing.T) {
	err := error(&ChunkError{Hash: Sum(nil), Err: ErrNotFound})
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "af1349b9f5f9") {
		t.Error(err)
	}
	err = &ChunkError{Hash: Sum(nil), Loc: Location{Segment: 7, Off: 64}, Err: ErrCorrupt}
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "segment 00000007 at 64") {
		t.Error(err)
	}
	if !bytes.Contains([]byte(Kind(9).String()), []byte("unknown")) || List.String() != "list" {
		t.Error("Kind.String")
	}
}
