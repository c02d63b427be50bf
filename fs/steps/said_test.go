package steps

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk/disktest"
	"ckptfs/index/ledger"
	"ckptfs/index/runs"
)

// countedFiles are those of a tree; it counts what is read.
type countedFiles struct {
	root string
	read *atomic.Int64
}

func (f countedFiles) ReadSmall(p string, _ int64) ([]byte, error) {
	f.read.Add(1)
	return os.ReadFile(filepath.Join(f.root, p))
}

func (f countedFiles) Read(string, func(io.ReaderAt, int64) error) error {
	f.read.Add(1)
	return unix.EIO
}

// lookedBy is run r as new Steps see it that recall said, and how many files they read.
func lookedBy(t *testing.T, root string, said map[Print][]byte) (*Steps, map[string]*Step, int) {
	t.Helper()
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	var read atomic.Int64
	s := New(Options{Files: countedFiles{root, &read}})
	s.Open(fd)
	s.Recall(said)
	found, err := s.Of("r")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*Step{}
	for _, st := range found["r"] {
		all["r/"+st.Name] = st
	}
	return s, all, int(read.Load())
}

// TestRecall: what a step with the print of an earlier look says of itself is not read again. All others are
// read: what changed, what could not be read before, and what says very much.
func TestRecall(t *testing.T) {
	root := t.TempDir()
	step := func(n int) string { return filepath.Join(root, Dir, "r", fmt.Sprint(n)) }
	long := "{"
	for i := range 200 {
		long += fmt.Sprintf(`"m%d": %d,`, i, i)
	}
	for n, metrics := range []string{`{"loss": 0.5, "acc": 1e300}`, `{"loss": 2}`, `{"loss": `, long + `"z": 1}`} {
		if err := os.MkdirAll(step(n), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string]string{"m.safetensors": "12345", "metrics.json": metrics} {
			if err := os.WriteFile(filepath.Join(step(n), name), []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	parent := `{"parent": "runs/a/3", "how": "transfer", "tensors": {"new": "old"}}`
	if err := os.WriteFile(filepath.Join(step(0), LineageFile), []byte(parent), 0o600); err != nil {
		t.Fatal(err)
	}
	disktest.WaitTick(t)
	s, before, _ := lookedBy(t, root, nil)
	said := s.prints(before, 0)
	_, after, read := lookedBy(t, root, said)
	if len(said) != 4 || read != 2 { // the metrics of steps 2 and 3
		t.Errorf("%d prints, %d files read", len(said), read)
	}
	for at, st := range before {
		is := after[at]
		if !reflect.DeepEqual(is.Metrics, st.Metrics) || !reflect.DeepEqual(is.declared, st.declared) ||
			is.Problem != st.Problem || is.Print != st.Print {
			t.Errorf("%s: %+v, it was %+v", at, is, st)
		}
	}
	if err := os.WriteFile(filepath.Join(step(1), "metrics.json"), []byte(`{"loss": 3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	disktest.WaitTick(t)
	if _, now, _ := lookedBy(t, root, said); now["r/1"].Metrics[0].Value != 3 {
		t.Errorf("changed, and its metrics are %v", now["r/1"].Metrics)
	}
}

// TestSaid: what a step says of itself is what it said, and nothing is taken from what is not whole.
func TestSaid(t *testing.T) {
	s := New(Options{})
	st := &Step{Metrics: runs.Metrics{{Name: "", Value: 3}, {Name: "a", Value: math.Inf(1)},
		{Name: "b", Value: -0.25}},
		declared: &ledger.Declared{Parent: "../2", MergedFrom: []string{"runs/b/7"},
			Tied: map[string][]string{"x": {"y", "z"}}}}
	said := st.Said()
	got := &Step{}
	if !s.recallFrom(got, said) || !reflect.DeepEqual(got, st) {
		t.Errorf("%+v, want %+v", got, st)
	}
	for i := range said {
		if s.recallFrom(new(Step), said[:i]) {
			t.Errorf("%d bytes of %d are taken", i, len(said))
		}
	}
	none := &Step{}
	if !s.recallFrom(none, new(Step).Said()) || !reflect.DeepEqual(none, &Step{}) {
		t.Errorf("%+v of a step that says nothing", none)
	}
}

// notHere are Files whose bytes are not here.
type notHere struct{ Files }

func (notHere) ReadSmall(string, int64) ([]byte, error) { return nil, ErrRemote }

// TestRecallNothingRemote: what was not here at a look may be here at the next, though nothing changed.
func TestRecallNothingRemote(t *testing.T) {
	for _, name := range []string{"metrics.json", LineageFile} {
		root := t.TempDir()
		step := filepath.Join(root, Dir, "r", "1")
		if err := os.MkdirAll(step, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(step, name), []byte(`{"parent": "runs/a/1"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		disktest.WaitTick(t)
		s, _, _ := lookedBy(t, root, nil)
		s.Files = notHere{s.Files}
		var st unix.Stat_t
		if err := unix.Stat(step, &st); err != nil {
			t.Fatal(err)
		}
		s.Changed(st.Ino)
		found, err := s.Of("r")
		if err != nil {
			t.Fatal(err)
		}
		said := s.prints(map[string]*Step{"r/1": found["r"][0]}, 0)
		if _, _, n := lookedBy(t, root, said); len(said) != 1 || n != 1 {
			t.Errorf("%s: %d of 1 file was read, as of %v", name, n, said)
		}
	}
}
