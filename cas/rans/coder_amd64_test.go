package rans

import (
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
