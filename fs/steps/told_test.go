package steps

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk/disktest"
	"ckptfs/cas/remote/record"
	"ckptfs/index/runs"
)

// remoteFiles are those of a tree, of which some have no bytes here.
type remoteFiles struct {
	root   string
	remote map[string]bool
}

func (f remoteFiles) ReadSmall(p string, _ int64) ([]byte, error) {
	if f.remote[filepath.Base(p)] {
		return nil, &os.PathError{Op: "read", Path: p, Err: ErrRemote}
	}
	return os.ReadFile(filepath.Join(f.root, p))
}

func (f remoteFiles) Read(string, func(io.ReaderAt, int64) error) error {
	return errors.New("not asked")
}

// What another machine told of a step counts where the file that says so is not here, and only there.
func TestMetricsOfOthers(t *testing.T) {
	root := t.TempDir()
	step := filepath.Join(root, Dir, "r", "1")
	if err := os.MkdirAll(step, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"m.safetensors": "12345", "metrics.json": `{"loss": 0.5}`,
		"trainer_state.json": `{}`} {
		if err := os.WriteFile(filepath.Join(step, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	said := record.Told{Metrics: []record.Metric{{Name: "acc", Value: 0.25}, {Name: "loss", Value: 9}}}
	told, err := said.Encode()
	if err == nil {
		err = unix.Setxattr(step, record.ToldAttr, told, 0)
	}
	if err != nil {
		t.Skip(err)
	}
	disktest.WaitTick(t)
	for remote, want := range map[string]map[string]float64{
		"":                   {"loss": 0.5},
		"trainer_state.json": {"loss": 0.5, "acc": 0.25},
		"metrics.json":       {"loss": 9, "acc": 0.25},
	} {
		fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		s := New(Options{Files: remoteFiles{root, map[string]bool{remote: true}}})
		s.Open(fd)
		found, err := s.Of("r")
		if err != nil || len(found["r"]) != 1 {
			t.Fatal(found, err)
		}
		if st := found["r"][0]; !slices.Equal(st.Metrics, runs.MetricsOf(want)) || st.Problem != "" {
			t.Errorf("without %q: %v, %q", remote, st.Metrics, st.Problem)
		}
		unix.Close(fd)
	}
}
