package bases

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/index/runs"
)

// listed is what before says, from a folder that is read for it.
func listed(t *testing.T, dir, own string, n int) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	pattern, number := runs.Numbers(own)
	var names []string
	for _, e := range all {
		if pat, num := runs.Numbers(e.Name()); pat == pattern && runs.CompareNumbers(num, number) < 0 {
			names = append(names, e.Name())
		}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		_, x := runs.Numbers(a)
		return compareName(b, x)
	})
	return names[:min(len(names), n)]
}

// However names come and go, what is kept of a folder is what is in it.
func TestFolders(t *testing.T) {
	dir := t.TempDir()
	f := newFolders()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		name := fmt.Sprintf([]string{"step-%d", "%d.pt", "e%d-s7", "none"}[rng.IntN(4)], rng.IntN(300))
		if name[0] == 'n' {
			name = "none"
		}
		p := filepath.Join(dir, name)
		if rng.IntN(3) == 0 {
			os.Remove(p)
			f.note(st.Ino, change{name, false})
		} else {
			if err := os.WriteFile(p, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			f.note(st.Ino, change{name, true})
		}
		if i%10 != 0 {
			continue
		}
		own := fmt.Sprintf([]string{"step-%d", "%d.pt", "e%d-s7", "e%d-s8"}[rng.IntN(4)], rng.IntN(320))
		reread, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		got, want := f.before(reread, own, 8), listed(t, dir, own, 8)
		reread.Close()
		if !slices.Equal(got, want) {
			t.Fatalf("before %s: %q, want %q", own, got, want)
		}
	}
	sum := 0
	for _, names := range f.kept.Values()[0].series {
		sum += len(names)
	}
	if f.kept.Len() != 1 || f.names != sum {
		t.Errorf("%d folders, %d names, of %d", f.kept.Len(), f.names, sum)
	}
	f.gone(st.Ino)
	if f.kept.Len() != 0 || f.names != 0 {
		t.Errorf("gone, but %d folders, %d names", f.kept.Len(), f.names)
	}
}

// More names than a folder was once looked at for: the step before is found all the same.
func TestStepBeforeAmongMany(t *testing.T) {
	f, dir := inFolder(t)
	const n = maxSiblings + 500
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("model-%d.pt", 7*i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{1, 50, n / 2, n} {
		got := f.stepsBefore([]string{fmt.Sprintf("model-%d.pt", 7*i)}, 0)
		if len(got) == 0 || got[0] != fmt.Sprintf("model-%d.pt", 7*(i-1)) {
			t.Errorf("before %d: %.100q", 7*i, got)
		}
	}
	if got := f.stepsBefore([]string{"model.pt"}, 0); got != nil {
		t.Errorf("without a number: %q", got)
	}
}

// What is kept is bounded, and what changes while a folder is read is not lost.
func TestFoldersKept(t *testing.T) {
	f := newFolders()
	for i := range keptFolders + 10 {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		d, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.before(d, "1000", 8); len(got) != 1 {
			t.Errorf("%q", got)
		}
		d.Close()
	}
	if f.kept.Len() != keptFolders || f.names != keptFolders {
		t.Errorf("%d folders, %d names", f.kept.Len(), f.names)
	}
	x := &folder{read: make(chan struct{}), series: map[string][]string{}}
	f.kept.Add(7, x)
	f.note(7, change{"1", true})
	f.note(7, change{"1", false})
	f.note(7, change{"2", true})
	if len(x.since) != 3 || x.n != 0 {
		t.Errorf("%+v", x)
	}
}

// BenchmarkBefore asks for the steps before one in a run of 100,000.
func BenchmarkBefore(b *testing.B) {
	dir := b.TempDir()
	for i := range 100_000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	f := newFolders()
	for b.Loop() {
		d, err := os.Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		f.before(d, "99999", 32)
		d.Close()
	}
}
