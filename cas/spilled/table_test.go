package spilled

import (
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"ckptfs/cas/disk"
)

// The table beside a map, with keys that begin alike, and with some at the end of all.
func TestTable(t *testing.T) {
	type place struct {
		key uint64
		who uint32
	}
	rapid.Check(t, func(rt *rapid.T) {
		tab, all := New(nil), map[place]uint32{}
		keys := []uint64{0, 1, 2, 1 << 40, 1 << 63, 1<<63 + 1<<57, 1<<64 - 3, 1<<64 - 2, 1<<64 - 1}
		rt.Repeat(map[string]func(*rapid.T){"set": func(rt *rapid.T) {
			p := place{rapid.SampledFrom(keys).Draw(rt, "key"), rapid.Uint32Range(0, 40).Draw(rt, "who")}
			n := rapid.Uint32Range(0, 3).Draw(rt, "n")
			if tab.Set(p.key, p.who, n); n == 0 {
				delete(all, p)
			} else {
				all[p] = n
			}
		}, "": func(rt *rapid.T) {
			if tab.Len() != len(all) || tab.Err() != nil {
				rt.Fatalf("%d of %d: %v", tab.Len(), len(all), tab.Err())
			}
			n := 0
			for _, key := range keys {
				of := tab.Of(nil, key)
				if !slices.IsSortedFunc(of, func(a, b Slot) int { return a.compare(b.Key, b.Who) }) {
					rt.Fatalf("%v", of)
				}
				for _, s := range of {
					if s.Key != key || all[place{key, s.Who}] != s.N || tab.At(key, s.Who) != s.N {
						rt.Fatalf("%+v is to be %d", s, all[place{key, s.Who}])
					}
				}
				n += len(of)
			}
			if n != len(all) || tab.At(5, 0) != 0 {
				rt.Fatalf("%d of %d", n, len(all))
			}
		}})
	})
}

// filled is a table of n keys in a folder.
func filled(t testing.TB, n int) *Table {
	t.Helper()
	dir, err := disk.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	tab, r := New(dir), rand.New(rand.NewPCG(1, 2))
	for i := range n {
		tab.Set(r.Uint64(), 0, uint32(i+1))
	}
	return tab
}

// A large table takes no memory of its own, and leaves no name.
func TestInFile(t *testing.T) {
	tab := filled(t, 200000)
	if tab.Memory() != 0 || tab.Mapped() < 200000*slotBytes || tab.Len() != 200000 {
		t.Errorf("%d bytes in memory, %d in the file of %d", tab.Memory(), tab.Mapped(), tab.Len())
	}
	if names, err := tab.dir.OpenDir("."); err != nil {
		t.Error(err)
	} else if all, err := names.Readdirnames(-1); len(all) > 0 {
		t.Errorf("left: %v, %v", all, err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 200000 {
		if key := r.Uint64(); tab.At(key, 0) != uint32(i+1) {
			t.Fatalf("key %d has %d", i, tab.At(key, 0))
		} else if i%2 == 0 {
			tab.Set(key, 0, 0)
		}
	}
	if tab.Len() != 100000 {
		t.Errorf("%d are left", tab.Len())
	}
}

// Where a folder takes no file, it stays in memory.
func TestNoFile(t *testing.T) {
	dir, err := disk.OpenFolder("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	tab := New(dir)
	for i := range uint64(100000) {
		tab.Set(i<<40, 0, 1)
	}
	if tab.Memory() == 0 || tab.Len() != 100000 {
		t.Errorf("%d bytes, %d", tab.Memory(), tab.Len())
	}
}

// A file that is not there any more is an error, and the table is empty.
func TestLost(t *testing.T) {
	tab := filled(t, 100000)
	if err := unix.Mprotect(tab.file.bytes, unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	if n := tab.At(0, 0); n != 0 || tab.Err() == nil {
		t.Errorf("%d, %v", n, tab.Err())
	}
	tab.Set(1, 1, 1)
	if tab.Len() != 0 || len(tab.Of(nil, 1)) != 0 || tab.Err() == nil {
		t.Errorf("%d, %v", tab.Len(), tab.Err())
	}
}

// The values of a large slab take no memory, and one that was given back is given out again, empty.
func TestSlab(t *testing.T) {
	dir, err := disk.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	type value struct{ n, _ uint64 }
	s, all := NewSlab[value](dir), map[uint64]*value{}
	for i := range uint64(1 << 20) {
		p := s.New()
		if p.n != 0 {
			t.Fatalf("value %d begins as %d", i, p.n)
		}
		p.n = i + 1
		all[i+1] = p
		if i%3 == 0 {
			delete(all, i+1)
			s.Free(p)
		}
	}
	for n, p := range all {
		if p.n != n {
			t.Fatalf("%d is %d", n, p.n)
		}
	}
	if n := s.Memory(); n > 2<<20 {
		t.Errorf("%d bytes", n)
	}
	if err := unix.Mprotect(s.files[0].bytes, unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	lost := Guard(func() error {
		for _, p := range all {
			p.n++
		}
		return nil
	})
	if lost != ErrLost {
		t.Errorf("a file that is lost: %v", lost)
	}
	defer func() {
		if recover() == nil {
			t.Error("a mistake of the program is passed over")
		}
	}()
	_ = Guard(func() error { panic("other") })
}

// What 10,000,000 keys take: bench with -benchtime 10000000x.
func BenchmarkSet(b *testing.B) {
	tab, r := filled(b, 0), rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		tab.Set(r.Uint64(), 1, 1)
	}
	b.ReportMetric(float64(tab.Mapped())/float64(b.N), "B/key")
}
