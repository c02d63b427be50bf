package plans

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"ckptfs/formats/dcp"
	"ckptfs/formats/detect"
)

// folder are the files of a folder that torch.distributed.checkpoint wrote, their names, and its .metadata.
func folder(t *testing.T, name string) (files []file, names []string, metadata []byte) {
	t.Helper()
	dir := "../../formats/testdata/dcp/" + name
	all, err := filepath.Glob(dir + "/*" + dcp.Suffix)
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, p := range all {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		l, err := detect.Detect(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file{&Source{Layout: l}, b})
		names = append(names, filepath.Base(p))
	}
	metadata, err = os.ReadFile(dir + "/" + dcp.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	return files, names, metadata
}

// What ranks wrote in parts is one file, as torch loads it.
func TestConsolidate(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		files, names, metadata := folder(t, name)
		p, err := Consolidate(sources(files...), names, metadata)
		if err != nil {
			t.Fatal(err)
		}
		over(p, files...).saved(t, "dcp "+name)
	}
}

// A folder that is not whole, or whose files are others, is refused.
func TestConsolidateRefuses(t *testing.T) {
	files, names, metadata := folder(t, "two")
	_, err := Consolidate(sources(files[:1]...), names[:1], metadata)
	refused(t, "a file that is missing", err)
	_, err = Consolidate(sources(files[1], files[0]), names, metadata)
	refused(t, "files that are exchanged", err)
	_, err = Consolidate(sources(files...), names, metadata[:len(metadata)/2])
	refused(t, "half of the metadata", err)
	_, err = Consolidate(sources(files...), names, nil)
	refused(t, "no metadata", err)
	one, _, _ := folder(t, "one")
	_, err = Consolidate(sources(one[0], files[1]), names, metadata)
	refused(t, "a file of another folder", err)
}

// Parts that lie in each other, or leave something out, are no tensor.
func TestParts(t *testing.T) {
	box := func(numbers ...int64) part {
		half := len(numbers) / 2
		return part{origin: numbers[:half], size: numbers[half:]}
	}
	for what, x := range map[string]struct {
		parts []part
		ok    bool
	}{
		"halves":       {[]part{box(0, 0, 2, 6), box(2, 0, 2, 6)}, true},
		"quarters":     {[]part{box(0, 0, 2, 3), box(2, 0, 2, 3), box(2, 3, 2, 3), box(0, 3, 2, 3)}, true},
		"a pinwheel":   {[]part{box(0, 0, 1, 4), box(1, 0, 3, 2), box(0, 4, 3, 2), box(3, 2, 1, 4), box(1, 2, 2, 2)}, true},
		"a gap":        {[]part{box(0, 0, 1, 6), box(2, 0, 2, 6)}, false},
		"an overlap":   {[]part{box(0, 0, 3, 6), box(2, 0, 2, 6)}, false},
		"both":         {[]part{box(0, 0, 2, 6), box(1, 0, 2, 6)}, false},
		"outside":      {[]part{box(0, 0, 2, 6), box(2, 0, 3, 6)}, false},
		"negative":     {[]part{box(-1, 0, 3, 6), box(2, 0, 2, 6)}, false},
		"an empty one": {[]part{box(0, 0, 4, 6), box(0, 0, 0, 6)}, false},
		"huge":         {[]part{box(0, 0, 1<<62, 6), box(2, 0, 2, 6)}, false},
	} {
		g := &gather{shape: []int64{4, 6}, to: "U8", parts: x.parts}
		var data [][]byte // of each part, its elements are where they lie in the tensor
		err := g.check("t")
		if (err == nil) != x.ok {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil {
			continue
		}
		src := at{}
		for i := range g.parts {
			p := &g.parts[i]
			var b []byte
			for r := range p.size[0] {
				for c := range p.size[1] {
					b = append(b, byte((p.origin[0]+r)*6+p.origin[1]+c))
				}
			}
			p.op = &copied{src: i}
			data = append(data, b)
			src.src = append(src.src, bytes.NewReader(b))
		}
		for off := range int64(24) {
			for end := off + 1; end <= 24; end++ {
				got := make([]byte, end-off)
				if err := g.read(src.src, got, off); err != nil {
					t.Fatal(err)
				}
				for i, x := range got {
					if int64(x) != off+int64(i) {
						t.Fatalf("%s: [%d, %d) is %v of %v", what, off, end, got, data)
					}
				}
			}
		}
	}
}

// Of random boxes two overlap if any pair does.
func TestOverlapping(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	found := map[bool]int{}
	for range 20_000 {
		g := &gather{shape: []int64{8, 9, 10}[:rng.IntN(4)]}
		for range 1 + rng.IntN(5) {
			var p part
			for _, n := range g.shape {
				p.origin = append(p.origin, rng.Int64N(n))
				p.size = append(p.size, 1+rng.Int64N(min(4, n-p.origin[len(p.origin)-1])))
			}
			g.parts = append(g.parts, p)
		}
		want := false
		for i := range g.parts {
			for k := range i {
				want = want || g.parts[i].overlaps(&g.parts[k])
			}
		}
		if found[want]++; g.overlapping() != want {
			t.Fatalf("%+v: %t", g.parts, !want)
		}
	}
	if found[true] < 1000 || found[false] < 1000 {
		t.Errorf("%v", found)
	}
}

// A tensor of many ranks is looked at in about the time of its parts.
func BenchmarkOverlapping(b *testing.B) {
	g := &gather{shape: []int64{4096, 64}}
	for r := range int64(maxParts) {
		g.parts = append(g.parts, part{origin: []int64{r / 64 * 64, r % 64}, size: []int64{64, 1}})
	}
	for range b.N {
		if g.overlapping() {
			b.Fatal("they do not")
		}
	}
}
