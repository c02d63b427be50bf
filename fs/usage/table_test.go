package usage

import (
	"encoding/binary"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
)

// hashOf is a hash of which some begin alike.
func hashOf(n int) (h cas.Hash) {
	binary.BigEndian.PutUint16(h[:], uint16(n%2))
	binary.BigEndian.PutUint16(h[6:], uint16(n))
	return h
}

// The table beside a map: whatever is added and taken away, it tells who is the first and who was the last.
func TestTable(t *testing.T) {
	type key struct {
		h   cas.Hash
		who uint32
	}
	rapid.Check(t, func(rt *rapid.T) {
		tab, refs := &table{beyond: map[crowded]int{}}, map[key]int{}
		holders := func(h cas.Hash, but uint32) (n int, base bool) {
			for k := range refs {
				if k.h == h && k.who != but {
					base = base || k.who == asBase
					if k.who != asBase {
						n++
					}
				}
			}
			return n, base
		}
		rt.Repeat(map[string]func(*rapid.T){"add": func(rt *rapid.T) {
			k := key{hashOf(rapid.IntRange(0, 5).Draw(rt, "hash")),
				rapid.SampledFrom([]uint32{noRun, 1, 2, asBase}).Draw(rt, "who")}
			by := rapid.SampledFrom([]int{1, 1, -1}).Draw(rt, "by")
			many := 1
			if by > 0 && rapid.IntRange(0, 9).Draw(rt, "many") == 0 {
				many = mostRefs + 3
			} else if by < 0 && refs[k] > mostRefs {
				many = refs[k]
			}
			for range many {
				is, ok := tab.add(&k.h, k.who, by)
				if ok != (by > 0 || refs[k] > 0) {
					rt.Fatalf("%v by %d of %d: %v", k, by, refs[k], ok)
				}
				if !ok {
					break
				}
				before := refs[k]
				if refs[k] += by; refs[k] == 0 {
					delete(refs, k)
				}
				if is.own != (before == 0 || refs[k] == 0) {
					rt.Fatalf("%v from %d by %d: %+v", k, before, by, is)
				}
				if !is.own {
					continue
				}
				others, base := holders(k.h, k.who)
				if is.alone != (others == 0) || is.base != base {
					rt.Fatalf("%v: %+v, of %v", k, is, refs)
				}
			}
			others, base := holders(k.h, 9)
			if tab.has(&k.h) != (others > 0 || base) {
				rt.Fatalf("has %v, of %v", k.h, refs)
			}
		}})
		for k, n := range refs {
			for range n {
				tab.add(&k.h, k.who, -1)
			}
			if _, ok := tab.add(&k.h, k.who, -1); ok {
				rt.Fatalf("%v: more than %d", k, n)
			}
		}
		if i := slices.IndexFunc(tab.shards[:], func(s []pair) bool { return len(s) > 0 }); i >= 0 {
			rt.Fatalf("left in shard %d: %v", i, tab.shards[i])
		}
	})
}

// What a reference takes, of as many as there are iterations: bench with -benchtime 10000000x.
func BenchmarkTable(b *testing.B) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	tab := &table{beyond: map[crowded]int{}}
	r := uint64(1)
	for b.Loop() {
		var h cas.Hash
		for i := range 2 {
			r = r*6364136223846793005 + 1442695040888963407
			binary.BigEndian.PutUint32(h[4*i:], uint32(r>>32))
		}
		tab.add(&h, 1, 1)
	}
	b.StopTimer()
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(b.N), "B/ref")
	runtime.KeepAlive(tab)
}
