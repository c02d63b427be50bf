package volume

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/segment"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// newRottingKin is a store of files that are computed of others, in several segments.
func newRottingKin(t *testing.T) *rotting {
	s := &rotting{t: t, files: map[string][]byte{}, plain: map[string]bool{}, owner: map[string][]span{}}
	r := openRig(t, filepath.Join(inMemory(t), "store"))
	files := kin(t)
	for i, f := range files {
		if i%4 == 3 {
			r.evicted()
			r = r.reopen()
		}
		r.saveKin(files[i:][:1])
		s.files[f.path] = f.bytes
	}
	r.evicted()
	for _, f := range files {
		if n := r.computedOf(f.path); n > 0 != f.made {
			t.Fatalf("%s: %d chunks are computed", f.path, n)
		}
		r.own(s, f.path)
	}
	r.close()
	s.dir = r.dir
	return s
}

// TestRotRecipesWhileOpen and TestRotRecipesBeforeOpen are the same for what is computed of others.
func TestRotRecipesWhileOpen(t *testing.T) {
	t.Parallel()
	newRottingKin(t).whileOpen(2000)
}

func TestRotRecipesBeforeOpen(t *testing.T) {
	t.Parallel()
	newRottingKin(t).beforeOpen(200)
}

// records are the places of the records in segments, and the paths that need each.
func (s *rotting) records() (all []flip, needs map[flip][]string) {
	needs = map[flip][]string{}
	for file, spans := range s.owner {
		for _, sp := range spans {
			if !strings.HasPrefix(file, tree.SegmentsDir) {
				continue
			}
			f := flip{file: file, off: sp.from}
			needs[f] = append(needs[f], sp.paths...)
		}
	}
	for f, paths := range needs {
		slices.Sort(paths)
		needs[f] = slices.Compact(paths)
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b flip) int {
		return strings.Compare(a.String(), b.String())
	})
	return all, needs
}

// end is where the record at off of a segment ends.
func (s *rotting) end(file string, off int64) int64 {
	for _, sp := range s.owner[file] {
		if sp.from == off {
			return sp.to
		}
	}
	s.t.Fatal("no record there")
	return 0
}

// TestRotRecipesNamed: a check names each file whose bytes are computed of a damaged record, and no other:
// the base, what is computed of it, and what is computed of that.
func TestRotRecipesNamed(t *testing.T) {
	t.Parallel()
	s := newRottingKin(t)
	seed := uint64(time.Now().UnixNano())
	g := rand.New(rand.NewPCG(seed, 3))
	all, needs := s.records()
	tried, damaged, several := 0, 0, 0
	for i, at := range all {
		if flips(t, 20) < 20 && i%4 > 0 {
			continue
		}
		payload := at.off + segment.RecordHeaderSize
		size := s.end(at.file, at.off) - payload
		// A recipe's record begins with the names of its bases and its program.
		for _, off := range []int64{0, 33, 40, size / 2, g.Int64N(size), g.Int64N(min(size, 128))} {
			f := flip{file: at.file, off: payload + min(off, size-1), bit: byte(g.IntN(8))}
			f.apply(t, s.dir)
			n := s.named(f, needs[at])
			f.apply(t, s.dir)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
			tried++
			if n > 0 {
				damaged++
			}
			if n > 1 {
				several++
			}
		}
	}
	if damaged < tried/2 || several == 0 {
		t.Errorf("of %d flips %d were found, %d of them in several files", tried, damaged, several)
	}
}

// named opens the store with a bit flipped, and returns how many files a check names: those that need what is
// damaged, or none.
func (s *rotting) named(f flip, needs []string) int {
	t := s.t
	t.Helper()
	r := openRig(t, s.dir, hotSize(0))
	defer r.close()
	<-r.surveyed
	found := map[string]bool{}
	ps := r.check().Problems
	for _, p := range ps {
		if p.Path != "" {
			found[p.Path] = true
		}
	}
	for p, want := range s.files {
		got, err := r.tryRead(p)
		switch {
		case err == nil && string(got) != string(want):
			t.Errorf("%s: %s reads as other bytes", f, p)
		case err != nil && (!errors.Is(err, unix.EIO) || !found[p]):
			t.Errorf("%s: %s: %v; the check names %v", f, p, err, found)
		}
	}
	if named := slices.Sorted(maps.Keys(found)); len(named) > 0 && !slices.Equal(named, needs) {
		t.Errorf("%s: the check names %v, want %v: %+v", f, named, needs, ps)
	}
	return len(found)
}

// TestRepairRecipes: after repairs of a store with a damaged or torn segment every file that does not need
// what was lost is there and right, and no other is wrong.
func TestRepairRecipes(t *testing.T) {
	t.Parallel()
	s := newRottingKin(t)
	seed := uint64(time.Now().UnixNano())
	g := rand.New(rand.NewPCG(seed, 4))
	all, needs := s.records()
	for i := range flips(t, 40) {
		at := all[g.IntN(len(all))]
		lost := needs[at]
		dir := filepath.Join(filepath.Dir(s.dir), "copy")
		copyTree(t, s.dir, dir)
		path := filepath.Join(dir, at.file)
		switch i % 3 {
		case 0:
			payload := at.off + segment.RecordHeaderSize
			flip{file: at.file, off: payload + g.Int64N(s.end(at.file, at.off)-payload)}.apply(t, dir)
		case 1: // the segment ends in the middle of a record
			lost = s.after(at.file, at.off)
			if err := os.Truncate(path, at.off+segment.RecordHeaderSize/2); err != nil {
				t.Fatal(err)
			}
		case 2: // it is gone
			lost = s.after(at.file, 0)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		s.repaired(dir, lost)
		if t.Failed() {
			t.Fatalf("seed %d, damage %d of %s at %d", seed, i%3, at.file, at.off)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// after are the paths that need something of a segment that ends after off.
func (s *rotting) after(file string, off int64) (paths []string) {
	for _, sp := range s.owner[file] {
		if sp.to > off {
			paths = append(paths, sp.paths...)
		}
	}
	return paths
}

// repaired repairs a damaged store. lost are the files that the damage may take.
func (s *rotting) repaired(dir string, lost []string) {
	t := s.t
	r := openRig(t, dir)
	<-r.surveyed
	look := func(when string) {
		t.Helper()
		for p, want := range s.files {
			if !r.exists(p) {
				if !slices.Contains(lost, p) || when == "damaged" {
					t.Errorf("%s: %s is gone", when, p)
				}
				continue
			}
			got, err := r.tryRead(p)
			switch {
			case err != nil && (!slices.Contains(lost, p) || !errors.Is(err, unix.EIO) || when == "repaired"):
				t.Errorf("%s: %s: %v", when, p, err)
			case err == nil && string(got) != string(want):
				t.Errorf("%s: %s reads as other bytes", when, p)
			}
		}
	}
	look("damaged")
	for _, part := range []string{RepairIndex, RepairSegments, RepairTree} {
		asked := func(p control.Problem) bool { return p.Repair == part }
		if slices.ContainsFunc(r.check().Problems, asked) {
			r, _ = r.repair(part)
			look(part + " repaired")
		}
	}
	look("repaired")
	for _, p := range r.check().Problems {
		t.Errorf("repaired: %+v", p)
	}
	// What was lost is saved again.
	for p, want := range s.files {
		if !r.exists(p) {
			r.saveRelative(relative{path: p, bytes: want})
		}
	}
	r.sync()
	r.evictAll()
	for p, want := range s.files {
		r.same(p, want)
	}
	r.sound()
	r.close()
}

// TestBaseSavedAgain: what is computed of a damaged record cannot be read, and the log says which file that
// is of; once the record's bytes are saved again, under whatever name, it can.
func TestBaseSavedAgain(t *testing.T) {
	t.Parallel()
	for _, repaired := range []bool{false, true} {
		s := newRottingKin(t)
		r := openRig(t, s.dir, hotSize(0))
		_, m := r.manifestOf(kinBase)
		var base cas.Hash
		for _, o := range m.Objects {
			if spans, err := o.Spans(r.store.Get); err != nil {
				t.Fatal(err)
			} else if int64(len(spans))*int64(spans[0].Len) > 64<<10 {
				base = spans[0].Hash
			}
		}
		r.close()
		r = openRig(t, s.dir, hotSize(0), func(o *Options) { o.CacheBytes = 1 })
		r.damage(base)
		lost := 0
		for p, want := range s.files {
			got, err := r.tryRead(p)
			if err == nil {
				r.equal(p, got, want)
				continue
			}
			lost++
			if !errors.Is(err, unix.EIO) || !r.log.has("ERROR", p) {
				t.Errorf("%s: %v; reported: %s", p, err, r.log)
			}
		}
		if lost < 6 || lost == len(s.files) {
			t.Errorf("%d files cannot be read", lost)
		}
		if repaired {
			r, _ = r.repair(RepairSegments)
		}
		r.mkdir("again")
		r.write("again/base.safetensors", s.files[kinBase])
		r.pack("again/base.safetensors")
		r = r.reopen(hotSize(0))
		for p, want := range s.files {
			r.same(p, want)
		}
		r.sound()
	}
}
