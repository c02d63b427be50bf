package rans

import (
	"testing"

	"ckptfs/cas/codectest"
	"ckptfs/cas/simd"
)

// levels is codectest.Levels, but at each level with each kind of kernels in turn that it may choose from.
func levels(f func(how string)) {
	defer func() { forced = nil }()
	codectest.Levels(func(how string) {
		for i := range coders {
			if c := &coders[i]; c.level <= simd.Now() {
				forced = &choice{&c.decoding, &c.encoding}
				f(how + "/" + c.name)
			}
		}
		if forced = nil; !simd.Has(simd.AVX2) {
			f(how)
		}
	})
}

// TestCoding: where a level has kernels some of them code, none of a higher level.
func TestCoding(t *testing.T) {
	simd.Each(func(l simd.Level) {
		c := coding()
		if l == simd.Portable {
			if c != nil {
				t.Errorf("%s: kernels code", l)
			}
			return
		}
		var decodes, encodes bool
		for i := range coders {
			if coders[i].level <= l && c != nil {
				decodes = decodes || c.decode == &coders[i].decoding
				encodes = encodes || c.encode == &coders[i].encoding
			}
		}
		if !decodes || !encodes {
			t.Errorf("%s: kernels of the level decode %v, encode %v", l, decodes, encodes)
		}
	})
}
