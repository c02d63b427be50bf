package simd

import "testing"

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		host []Level
		name string
		want Level
		err  string
	}{
		{[]Level{Portable, AVX2}, "", AVX2, ""},
		{[]Level{Portable, AVX2}, "portable", Portable, ""},
		{[]Level{Portable, AVX2, AVX512}, "avx2", AVX2, ""},
		{[]Level{Portable, AVX2}, "avx512", AVX2,
			"CKPTFS_CPU=avx512: this processor does not have it; unset CKPTFS_CPU, or take one of portable, avx2"},
		{[]Level{Portable, AVX2}, "sse9", AVX2,
			"CKPTFS_CPU=sse9: no level is called so; unset CKPTFS_CPU, or take one of portable, avx2"},
		{[]Level{Portable, AVX2, AVX512}, "neon", AVX512,
			"CKPTFS_CPU=neon: this processor does not have it; unset CKPTFS_CPU, or take one of portable, avx2, avx512"},
		{[]Level{Portable, NEON}, "", NEON, ""},
		{[]Level{Portable, NEON}, "portable", Portable, ""},
		{[]Level{Portable, NEON}, "avx2", NEON,
			"CKPTFS_CPU=avx2: this processor does not have it; unset CKPTFS_CPU, or take one of portable, neon"},
	} {
		got, err := limit(c.host, c.name)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%v, %q: %v, %v", c.host, c.name, got, err)
		}
	}
}
