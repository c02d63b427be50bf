package usage

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
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
		of := newTable(nil)
		tab, refs := &of, map[key]int{}
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
			is, ok := tab.add(&k.h, k.who, by)
			if ok != (by > 0 || refs[k] > 0) {
				rt.Fatalf("%v by %d of %d: %v", k, by, refs[k], ok)
			}
			before := refs[k]
			if refs[k] += by; refs[k] <= 0 {
				delete(refs, k)
			}
			if is.own != (ok && (before == 0 || refs[k] == 0)) {
				rt.Fatalf("%v from %d by %d: %+v", k, before, by, is)
			}
			if others, base := holders(k.h, k.who); is.own &&
				(is.alone != (others == 0) || is.base != base) {
				rt.Fatalf("%v: %+v, of %v", k, is, refs)
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
		if n := tab.refs.Len(); n > 0 {
			rt.Fatalf("%d are left", n)
		}
	})
}

// What is counted of very many records takes no memory, and what is known of files takes little.
func TestTakesNoMemory(t *testing.T) {
	dir, err := disk.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	c := &counts{mu: new(locks.Mutex[countsLock])}
	c.reset(dir)
	for i := range uint64(100000) {
		h := cas.Sum(binary.BigEndian.AppendUint64(nil, i))
		c.table.add(&h, 1, 1)
	}
	if n := c.table.refs.Memory(); n > 0 {
		t.Errorf("the counts: %d bytes", n)
	}
	m := newMirror(1, dir)
	inos := make([]uint64, 200000)
	for i := range inos {
		inos[i] = uint64(i) + 2
	}
	m.list(m.root, inos)
	if n := m.room.Memory() / int64(len(inos)); n > 6 {
		t.Errorf("the mirror: %d bytes a file", n)
	}
}
