package main

import (
	"bytes"
	"testing"

	"ckptfs/cas/codec"
	"ckptfs/cas/codectest"
)

// TestPayloadIsNew: what is said to be new of a payload is no difference from what it was that pays, and the
// rest is as it was.
func TestPayloadIsNew(t *testing.T) {
	const each, tensors = 1 << 20, 8
	w := codectest.Weights(each*tensors, 4)
	p := &payload{bytes: w}
	for i := range tensors {
		p.data = append(p.data, w[i*each:(i+1)*each])
	}
	for _, part := range []float64{1, 0.25, 1, 0} {
		before := bytes.Clone(w)
		p.change(part)
		changed := int(part * float64(len(w)))
		if !bytes.Equal(before[changed:], w[changed:]) {
			t.Errorf("%g: more is new", part)
		}
		hint := codec.Hint{DType: "F32", Elem: 4}
		for off := 0; off < changed; off += 256 << 10 {
			now, was := w[off:off+256<<10], before[off:off+256<<10]
			_, alone := codec.Encode(nil, now, hint)
			if _, pays := codec.EncodeDelta(nil, now, was, hint, len(alone)*9/10); pays {
				t.Fatalf("%g: what is at %d is a difference from what was there", part, off)
			}
		}
	}
}
