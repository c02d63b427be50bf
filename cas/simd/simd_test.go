package simd

import "testing"

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		host Level
		name string
		want Level
		err  string
	}{
		{AVX2, "", AVX2, ""},
		{AVX2, "portable", Portable, ""},
		{AVX512, "avx2", AVX2, ""},
		{AVX2, "avx512", AVX2, "CKPTFS_CPU=avx512: this processor has avx2 at most"},
		{AVX2, "sse9", AVX2, "CKPTFS_CPU=sse9: not a level (portable, avx2, avx512)"},
	} {
		got, err := limit(c.host, c.name)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%v, %q: %v, %v", c.host, c.name, got, err)
		}
	}
}
