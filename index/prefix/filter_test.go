package prefix

import (
	"testing"

	"pgregory.net/rapid"
)

// TestLacking counts what archs lack one by one.
func TestLacking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		heaviest := rapid.SampledFrom([]int{1, 4, 40}).Draw(t, "heaviest")
		lists := make([]filtered, rapid.IntRange(1, 30).Draw(t, "lists"))
		for i := range lists {
			l := &lists[i]
			l.weight = rapid.IntRange(1, heaviest).Draw(t, "weight")
			l.base = uint32(rapid.IntRange(0, 2).Draw(t, "base"))
			l.words = rapid.SliceOfN(rapid.Uint64(), 1, 3).Draw(t, "words")
		}
		word := uint32(rapid.IntRange(0, 3).Draw(t, "word"))
		most := rapid.IntRange(0, 100).Draw(t, "most")
		var l lacking
		left := l.count(lists, word, most)
		for a := range 128 {
			half, i := a/64, a%64
			lacks, counted := 0, 0
			for k := range lists {
				if lists[k].at(word+uint32(half))>>i&1 == 0 {
					lacks += lists[k].weight
					counted += lists[k].weight >> l.shift << l.shift
				}
			}
			switch in := left[half]>>i&1 != 0; {
			case !in && lacks <= most:
				t.Fatalf("arch %d is out: it lacks %d of at most %d", a, lacks, most)
			case in && l.shift == 0 && lacks > most:
				t.Fatalf("arch %d is in: it lacks %d of at most %d", a, lacks, most)
			case in && l.of(half, i) != counted:
				t.Fatalf("arch %d lacks %d, of which %d count, not %d", a, lacks, counted, l.of(half, i))
			}
		}
	})
}
