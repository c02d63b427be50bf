package anchors

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/anchor"
	"ckptfs/cas/disk"
)

var storeID = [16]byte{1, 2, 3}

// nth is the hash of a manifest.
func nth(i int) cas.Hash { return cas.Sum(fmt.Append(nil, i)) }

// keysOf are the anchors of tensor t of manifest i.
func keysOf(i, t, n int) (keys []anchor.Key) {
	rng := rand.New(rand.NewPCG(uint64(i), uint64(t)))
	for range n {
		keys = append(keys, anchor.Key(rng.Uint64()>>(64-anchor.KeyBits)))
	}
	return keys
}

func open(t testing.TB, fsys disk.FS, dir string, opt Options) *Index {
	t.Helper()
	opt.Store = storeID
	x, err := Open(fsys, dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

const (
	perTensor = 20
	tensors   = 5 // of a manifest
)

func note(t testing.TB, x *Index, i int) {
	t.Helper()
	var all []Tensor
	for k := range tensors {
		all = append(all, Tensor{uint32(2 * k), keysOf(i, k, perTensor)})
	}
	if err := x.Note(nth(i), all); err != nil {
		t.Fatal(err)
	}
}

// found reports whether the tensors of manifest i are, all or none.
func found(t testing.TB, x *Index, i int) bool {
	t.Helper()
	n := 0
	for k := range tensors {
		hits := x.Find(keysOf(i, k, perTensor), 2, 8)
		if slices.Equal(hits, []Hit{{nth(i), uint32(2 * k), perTensor}}) {
			n++
		} else if hits != nil {
			t.Fatalf("manifest %d, tensor %d: %v", i, k, hits)
		}
	}
	if n != 0 && n != tensors {
		t.Fatalf("manifest %d: %d of the tensors are found", i, n)
	}
	return n > 0
}

func TestIndex(t *testing.T) {
	dir := t.TempDir()
	dead := map[cas.Hash]bool{}
	opt := Options{Log: 5 * tensors * perTensor, Alive: func(m cas.Hash) bool { return !dead[m] }}
	x := open(t, disk.OS{}, dir, opt)
	const n = 203
	for i := range n {
		note(t, x, i)
		if !found(t, x, i) || !found(t, x, i/2) || found(t, x, n+i) {
			t.Fatalf("after %d", i)
		}
	}
	if len(x.runs) > 5 {
		t.Errorf("%d runs", len(x.runs))
	}
	check := func(x *Index, what string) {
		t.Helper()
		for i := range n {
			if found(t, x, i) == dead[nth(i)] {
				t.Errorf("%s: %d", what, i)
			}
		}
		seen := map[cas.Hash]int{}
		x.Each(func(m cas.Hash, _ uint32) bool {
			seen[m]++
			return true
		})
		if sum, _ := x.Sizes(); len(seen) != n-len(dead) || int(sum) != tensors*len(seen) {
			t.Errorf("%s: %d manifests, %d tensors", what, len(seen), sum)
		}
	}
	check(x, "as it was noted")
	// Keys of several, and too few of one.
	mixed := slices.Concat(keysOf(1, 0, 3), keysOf(7, 1, 5), keysOf(9, 2, 1))
	if got := x.Find(mixed, 2, 8); !slices.Equal(got, []Hit{{nth(7), 2, 5}, {nth(1), 0, 3}}) {
		t.Error(got)
	}
	if got := x.Find(mixed, 2, 1); len(got) != 1 {
		t.Error(got)
	}
	x.Close()
	x = open(t, disk.OS{}, dir, opt)
	check(x, "opened again")
	if x.Dropped() {
		t.Error("something is missing")
	}
	for i := range n / 3 {
		dead[nth(3*i)] = true
	}
	if err := x.Merge(); err != nil {
		t.Fatal(err)
	}
	check(x, "some are gone")
	if !x.Dropped() {
		t.Error("nothing is missing")
	}
	x.Close()
	x = open(t, disk.OS{}, dir, opt)
	check(x, "merged and opened again")
	for i := range n {
		dead[nth(i)] = true
	}
	if err := x.Merge(); err != nil {
		t.Fatal(err)
	}
	check(x, "all are gone")
	if names, _ := (disk.OS{}).ReadDir(dir); len(names) != 1 {
		t.Error(names)
	}
}

// TestMany: what many have is asked for at bounded cost, and those that were noted last are found.
func TestMany(t *testing.T) {
	x := open(t, disk.NewMem(), "/a", Options{Log: 4000})
	keys := keysOf(0, 0, 20)
	for i := range 500 {
		if err := x.Note(nth(i), []Tensor{{0, keys}}); err != nil {
			t.Fatal(err)
		}
	}
	hits := x.Find(keys, 2, 4)
	if len(hits) != 4 || !slices.ContainsFunc(hits, func(h Hit) bool { return h.Manifest == nth(499) }) {
		t.Errorf("%d hits", len(hits))
	}
}

// TestOther: what is of another store, of another version or not of this package is removed.
func TestOther(t *testing.T) {
	m := disk.NewMem()
	x := open(t, m, "/a", Options{Log: 100})
	note(t, x, 1)
	note(t, x, 2)
	x.Close()
	f, err := m.OpenFile("/a/00000009-00000007.run", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	y, err := Open(m, "/a", Options{Store: [16]byte{9}})
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	if n, _ := y.Sizes(); n != 0 || !y.Dropped() {
		t.Errorf("%d tensors of another store", n)
	}
}

// TestCrash: whatever was being written, the next start finds some of what was noted, and nothing else, and
// goes on.
func TestCrash(t *testing.T) {
	work := func(m *disk.Mem) {
		x, err := Open(m, "/a", Options{Store: storeID, Log: 3 * tensors * perTensor})
		if err != nil {
			return
		}
		defer x.Close()
		for i := range 24 {
			var all []Tensor
			for k := range tensors {
				all = append(all, Tensor{uint32(2 * k), keysOf(i, k, perTensor)})
			}
			x.Note(nth(i), all)
		}
		x.Merge()
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 0; ; n++ {
		m := disk.NewMem()
		var ops int
		crash := disk.CrashAfter(n)
		m.Inject(func(o disk.Op) *disk.Fault {
			ops++
			return crash(o)
		})
		work(m)
		for _, rng := range []*rand.Rand{nil, rng} {
			c := m.CrashClone(rng)
			x := open(t, c, "/a", Options{Log: 3 * tensors * perTensor})
			for i := range 24 {
				found(t, x, i)
			}
			note(t, x, 100)
			if err := x.Merge(); err != nil || !found(t, x, 100) {
				t.Fatalf("after %d operations: %v", n, err)
			}
			names, err := c.ReadDir("/a")
			if err != nil || len(names) != 2 {
				t.Fatalf("after %d operations: %v, %v", n, names, err)
			}
			x.Close()
		}
		if ops < n {
			return
		}
	}
}

// TestFails: an operation that fails costs what was noted, at most.
func TestFails(t *testing.T) {
	for n := 0; ; n++ {
		m := disk.NewMem()
		x := open(t, m, "/a", Options{Log: 3 * tensors * perTensor})
		ops := 0
		fails := disk.FailAt(n, fs.ErrPermission)
		m.Inject(func(o disk.Op) *disk.Fault {
			ops++
			return fails(o)
		})
		for i := range 12 {
			x.Note(nth(i), []Tensor{{0, keysOf(i, 0, perTensor)}})
		}
		x.Merge()
		m.Inject(nil)
		note(t, x, 100)
		if err := x.Merge(); err != nil || !found(t, x, 100) {
			t.Fatalf("operation %d: %v", n, err)
		}
		if ops < n {
			return
		}
	}
}

func TestConcurrent(t *testing.T) {
	x := open(t, disk.OS{}, t.TempDir(), Options{Log: 1000})
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 50 {
				note(t, x, 1000*w+i)
				x.Find(keysOf(1000*w, 0, perTensor), 2, 8)
			}
		})
	}
	all.Go(func() {
		for range 5 {
			if err := x.Merge(); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	for w := range 4 {
		for i := range 50 {
			if !found(t, x, 1000*w+i) {
				t.Fatal(w, i)
			}
		}
	}
}

// filed is an index in memory, and the name of its run.
func filed(t testing.TB, n int) (m *disk.Mem, run, log string) {
	m = disk.NewMem()
	x := open(t, m, "/a", Options{})
	for i := range n {
		note(t, x, i)
	}
	if err := x.Merge(); err != nil {
		t.Fatal(err)
	}
	note(t, x, n)
	x.Close()
	names, err := m.ReadDir("/a")
	if err != nil || len(names) != 2 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		if p := path.Join("/a", name); strings.HasSuffix(name, ".run") {
			run = p
		} else {
			log = p
		}
	}
	return m, run, log
}

// change changes n bytes of a file; sealed says that the pages' checksums are those of what they are then.
func change(t testing.TB, m *disk.Mem, name string, at int64, with []byte, sealed bool) {
	f, err := m.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	at %= size
	with = with[:min(int64(len(with)), size-at)]
	if _, err := f.WriteAt(with, at); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, pageSize)
	for k := at / pageSize; sealed && k*pageSize < min(size/pageSize*pageSize, at+int64(len(with))); k++ {
		if _, err := f.ReadAt(p, k*pageSize); err != nil {
			t.Fatal(err)
		}
		seal(p, int(be.Uint32(p[inPage:])))
		if _, err := f.WriteAt(p, k*pageSize); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamage: a page that is not what was written is never believed, and the run goes.
func TestDamage(t *testing.T) {
	for at := int64(0); at < 80*pageSize; at += 3000 {
		m, run, _ := filed(t, 300)
		change(t, m, run, at, []byte{0x5a, 0xa5, 0x5a}, false)
		x := open(t, m, "/a", Options{})
		for i := range 301 {
			for k := range tensors {
				for _, h := range x.Find(keysOf(i, k, perTensor), 2, 8) {
					if h != (Hit{nth(i), uint32(2 * k), perTensor}) {
						t.Fatalf("byte %d: %v", at, h)
					}
				}
			}
		}
		if err := x.Merge(); err != nil {
			t.Fatal(err)
		}
		if !found(t, x, 300) {
			t.Error("what was noted in the log is lost")
		}
	}
}

// FuzzHostile: files that are what nobody wrote cost reads.
func FuzzHostile(f *testing.F) {
	f.Add(int64(40), []byte{1, 2, 3}, true)
	f.Add(int64(pageSize+100), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, true)
	f.Add(int64(-pageSize-100), []byte("\x00\x00\x10\x00"), false)
	f.Fuzz(func(t *testing.T, at int64, with []byte, sealed bool) {
		m, name, log := filed(t, 12)
		if at < 0 {
			name, at = log, -(at + 1)
		}
		change(t, m, name, at, with, sealed)
		x := open(t, m, "/a", Options{Alive: func(h cas.Hash) bool { return h[0]&1 == 0 }})
		for i := range 20 {
			x.Find(keysOf(16*i, 0, perTensor), 2, 8)
		}
		x.Each(func(cas.Hash, uint32) bool { return true })
		if err := x.Merge(); err != nil {
			t.Fatal(err)
		}
		x.Find(keysOf(0, 0, perTensor), 2, 8)
	})
}

// FuzzLog: any documents.
func FuzzLog(f *testing.F) {
	f.Add(document(nth(0), []Tensor{{7, keysOf(0, 0, 9)}})[8:])
	f.Fuzz(func(t *testing.T, p []byte) {
		l := &log{}
		if !l.take(p) {
			return
		}
		var all []Tensor
		for i, at := range l.tensors {
			k := Tensor{Index: at.tensor}
			for _, e := range l.entries {
				if int(e&(maxTensors-1)) == i {
					k.Keys = append(k.Keys, anchor.Key(e>>ordinalBits))
				}
			}
			all = append(all, k)
		}
		if l.sorted == 0 && string(document(l.manifests[0], all)[8:]) != string(p) {
			t.Error("a document is not what it was made of")
		}
	})
}

// BenchmarkMillion: CKPTFS_MILLION=1 has a million tensors, else there are some thousands.
func BenchmarkMillion(b *testing.B) {
	manifests := 10
	if os.Getenv("CKPTFS_MILLION") != "" {
		manifests = 1000
	}
	const of = 1000
	x := open(b, disk.OS{}, b.TempDir(), Options{})
	for i := range manifests {
		var all []Tensor
		for k := range of {
			all = append(all, Tensor{uint32(k), keysOf(i, k, anchor.BaseWindows+anchor.BaseGroups)})
		}
		if err := x.Note(nth(i), all); err != nil {
			b.Fatal(err)
		}
	}
	sum, size := x.Sizes()
	var resident int
	for _, r := range x.runs {
		resident += 4 * len(r.fences)
	}
	resident += 8*cap(x.log.entries) + 8*cap(x.log.tensors)
	b.Logf("%d tensors, %d bytes, %d a tensor, %d runs, %d bytes resident", sum, size, size/sum, len(x.runs),
		resident)
	b.Run("one anchor", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			x.Find(keysOf(i%manifests, i%of, 1), 1, 8)
		}
	})
	b.Run("a tensor", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if hits := x.Find(keysOf(i%manifests, i%of, 64), 2, 8); len(hits) != 1 {
				b.Fatal(hits)
			}
		}
	})
	b.Run("in vain", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if hits := x.Find(keysOf(i+1<<40, 0, 128), 2, 8); len(hits) != 0 {
				b.Fatal(hits)
			}
		}
	})
}
