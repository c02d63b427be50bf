package pickle

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// same fails the test unless the three ways to read p agree.
func same(t *testing.T, p []byte) {
	lim := Limits{Nodes: 1 << 16, Pushes: 1 << 18, Marks: 1 << 10, Memo: 1 << 10}
	whole, err := Parse(p, lim)
	if err != nil && !IsParse(err) {
		t.Fatal(err)
	}
	const off = 7
	file := append(make([]byte, off), p...)
	f := File{R: bytes.NewReader(file), Off: off, Size: int64(len(file)), Large: 1 << 40, Buffer: 1 << 30}
	g, end, ferr := ParseFile(f, lim)
	if (err == nil) != (ferr == nil) || ferr != nil && !IsParse(ferr) {
		t.Fatalf("Parse: %v, ParseFile: %v", err, ferr)
	}
	stop, serr := Scan(bytes.NewReader(file), off, int64(len(file)), 1, func(at, n int64) error {
		if at < off || n < 1 || at+n > int64(len(file)) {
			t.Fatalf("bytes [%d, +%d) of %d", at, n, len(file))
		}
		return nil
	})
	if serr != nil && !IsParse(serr) {
		t.Fatal(serr)
	}
	if err != nil {
		return
	}
	if g.NumNodes() != whole.NumNodes() || end != int64(off+whole.Size()) || serr != nil || stop != end {
		t.Fatalf("Parse: %d nodes to %d; ParseFile: %d to %d; Scan to %d, %v", whole.NumNodes(),
			off+whole.Size(),
			g.NumNodes(), end, stop, serr)
	}
}

func seeds(t testing.TB) (all [][]byte) {
	t.Helper()
	for _, pattern := range []string{"../testdata/pickle/*.pkl", "../testdata/sklearn/*.pkl",
		"../testdata/sklearn/*.joblib"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range paths {
			p, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
	}
	return all
}

func TestThreeWays(t *testing.T) {
	for _, p := range seeds(t) {
		same(t, p)
	}
}

func FuzzThreeWays(f *testing.F) {
	for _, p := range seeds(f) {
		if len(p) < 20_000 {
			f.Add(p)
		}
	}
	f.Fuzz(func(t *testing.T, p []byte) { same(t, p) })
}

func TestRaw(t *testing.T) {
	p := []byte("\x80\x04](C\x03abcB\x05\x00\x00\x00hello\x8e\x0a\x00\x00\x00\x00\x00\x00\x00helloworldX\x05\x00\x00\x00worlde.after")
	g, end, err := ParseFile(File{R: bytes.NewReader(p), Size: int64(len(p)), Large: 4, Buffer: 1 << 20},
		DefaultLimits)
	if err != nil || end != int64(len(p)-5) {
		t.Fatal(end, err)
	}
	root := g.Root()
	if root.Len() != 4 || string(root.At(0).Text()) != "abc" || string(root.At(3).Text()) != "world" {
		t.Fatalf("%d values", root.Len())
	}
	for i, want := range map[int]string{1: "hello", 2: "helloworld"} {
		off, n, ok := root.At(i).Raw()
		if !ok || string(p[off:off+n]) != want {
			t.Errorf("value %d: [%d, +%d)", i, off, n)
		}
	}
}

func TestBuffer(t *testing.T) {
	p := append(append([]byte("\x80\x04X\x00\x00\x02\x00"), make([]byte, 2<<16)...), '.')
	for _, limit := range []int{1 << 10, 1 << 16, 2 << 16} {
		_, _, err := ParseFile(File{R: bytes.NewReader(p), Size: int64(len(p)), Large: 4, Buffer: limit},
			DefaultLimits)
		if !errors.Is(err, ErrLimit) {
			t.Errorf("%d: %v", limit, err)
		}
	}
	disk := errors.New("disk")
	if _, _, err := ParseFile(File{R: broken{disk}, Size: 100, Buffer: 1 << 20},
		DefaultLimits); !errors.Is(err, disk) {
		t.Error(err)
	}
	if _, err := Scan(broken{disk}, 0, 100, 0, nil); !errors.Is(err, disk) {
		t.Error(err)
	}
}

type broken struct{ err error }

func (b broken) ReadAt([]byte, int64) (int, error) { return 0, b.err }

var _ io.ReaderAt = broken{}
