package bases

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/tree"
)

// inFolder makes a folder and a Finder that looks there.
func inFolder(t *testing.T) (*Finder, string) {
	t.Helper()
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return New(Options{Root: fd}), dir
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// packed makes a file whose record says that it is packed, large enough to be looked at.
func packed(t *testing.T, p string, h cas.Hash) {
	t.Helper()
	mkdir(t, filepath.Dir(p))
	if err := os.WriteFile(p, make([]byte, minRelated), 0o600); err != nil {
		t.Fatal(err)
	}
	err := tree.WriteRecord(p, &tree.Record{Manifest: h})
	if err == unix.EOPNOTSUPP {
		t.Skip("the temporary folder keeps no attributes")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Names that would make each other longer and longer do not.
func TestStepsBeforeOfHostileNames(t *testing.T) {
	f, dir := inFolder(t)
	names := map[string]string{
		"a9" + strings.Repeat("-1", 24): "a8" + strings.Repeat("-11", 24),
		"b9" + strings.Repeat("-0", 24): "b8" + strings.Repeat("-1", 24),
	}
	for own, before := range names {
		mkdir(t, filepath.Join(dir, own))
		mkdir(t, filepath.Join(dir, before))
	}
	for own, before := range names {
		got := f.stepsBefore([]string{own, "model-1.pt"}, 0)
		if len(got) == 0 || got[0] != before+"/model-1.pt" {
			t.Errorf("%.200q", got)
		}
		for _, p := range got {
			if len(p) > 4096 {
				t.Errorf("%s: a path of %d bytes", own, len(p))
			}
		}
	}
}

// Names that lead elsewhere are not followed.
func TestElsewhere(t *testing.T) {
	f, dir := inFolder(t)
	want := cas.Sum([]byte("m"))
	packed(t, filepath.Join(dir, "m.safetensors"), want)
	if err := os.Symlink(dir, filepath.Join(dir, "step1")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"step1/m.safetensors", "../" + filepath.Base(dir) + "/m.safetensors", filepath.Join(dir, "m.safetensors")} {
		if h, ok := f.at(p); ok {
			t.Errorf("%s: %v", p, h)
		}
	}
	if h, ok := f.at("m.safetensors"); !ok || h != want {
		t.Error("not found where it is")
	}
}

// Of what a step says it came from the file of the same name comes first, then what else is in that step.
func TestParents(t *testing.T) {
	f, dir := inFolder(t)
	hash := func(name string) cas.Hash { return cas.Sum([]byte(name)) }
	for _, p := range []string{"runs/a/1/model.pt", "runs/a/1/adapter.pt", "runs/a/2.pt"} {
		packed(t, filepath.Join(dir, p), hash(p))
	}
	for p, c := range map[string]struct{ said, want []string }{
		"runs/b/1/model.pt": {[]string{"runs/a/1"}, []string{"runs/a/1/model.pt", "runs/a/1/adapter.pt"}},
		"runs/b/1.pt":       {[]string{"runs/a/2.pt", "runs/none/1"}, []string{"runs/a/2.pt"}},
		"elsewhere/1.pt":    {[]string{"runs/a/2.pt"}, nil},
	} {
		f.o.Parents = func(string) []string { return c.said }
		var want []cas.Hash
		for _, w := range c.want {
			want = append(want, hash(w))
		}
		if got := f.parents(p); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", p, got, want)
		}
	}
}

// A file takes the place of those of which it is the next version; the one with more signs in common comes
// first.
func TestSignatures(t *testing.T) {
	var s Signatures
	h := func(i byte) cas.Hash { return cas.Sum([]byte{i}) }
	s.Note([]uint64{1, 2, 3, 4, 5, 6, 7, 8}, h(1), nil)
	s.Note([]uint64{1, 2, 3, 4, 5, 6, 7, 8}, h(2), []cas.Hash{h(1)})
	s.Note([]uint64{8, 11, 12, 13, 14, 15, 16, 17}, h(3), nil)
	s.Note([]uint64{20, 21, 22, 23}, h(4), nil)
	s.recall([]uint64{1, 2, 3, 4}, h(5))
	if got := s.of([]uint64{1, 2, 3, 4, 5, 6, 7, 8}); !slices.Equal(got, []cas.Hash{h(2), h(5), h(3)}) {
		t.Errorf("%v", got)
	}
}

// Without a Finder nothing is stored against anything.
func TestNone(t *testing.T) {
	var f *Finder
	f.NotePath("a", cas.Hash{})
	f.Note("a", cas.Hash{}, nil, nil, false)
	if rel, was, _ := f.Related(t.Context(), "a", nil); rel.Before != nil || was != nil {
		t.Error("something")
	}
	if l, _, err := f.Presume("a", nil, 0); l != nil || err != nil {
		t.Error("something presumed")
	}
}

// A file of few tensors is alike to those that share one of them, and to no others: many such do not take the
// places of a file that is alike.
func TestSignaturesOfFewTensors(t *testing.T) {
	var s Signatures
	h := func(i uint64) cas.Hash { return cas.Sum([]byte{byte(i)}) }
	s.Note([]uint64{1, 2, 3, 4, 5, 6, 7, 8}, h(1), nil)
	for i := range uint64(2 * maxAlike) {
		s.Note([]uint64{100 + i, 200 + i}, h(100+i), nil)
	}
	if got := s.of([]uint64{1, 2, 3, 4}); !slices.Equal(got, []cas.Hash{h(1)}) {
		t.Errorf("%d files, want the one alike", len(got))
	}
	if got := s.of([]uint64{1, 2, 103}); !slices.Equal(got, []cas.Hash{h(103), h(1)}) {
		t.Errorf("%d files, want the two that share tensors", len(got))
	}
}

// What follows from others, such as many merges of them, does not hide these.
func TestSlightSignatures(t *testing.T) {
	var s Signatures
	h := func(i uint64) cas.Hash { return cas.Sum([]byte{byte(i)}) }
	signs := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	s.note(signs, h(1), nil, false)
	for i := range uint64(2 * maxAlike) {
		s.note(signs, h(100+i), nil, true)
	}
	got := s.of(signs)
	if len(got) != maxAlike || got[0] != h(1) || got[1] != h(100+2*maxAlike-1) {
		t.Errorf("%v", got)
	}
}
