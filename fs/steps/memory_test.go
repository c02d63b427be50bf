package steps

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// plainFiles are the files of a tree without a store.
type plainFiles string

func (f plainFiles) ReadSmall(path string, _ int64) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(f), path))
}

func (plainFiles) Read(string, func(io.ReaderAt, int64) error) error { return unix.ENOENT }

// What is known of a step of eleven files takes what cmd/ckptfs/heap says it does.
func TestStepTakes(t *testing.T) {
	const steps, most = 400, 800
	d := newTold(t)
	root := filepath.Dir(filepath.Dir(d.run))
	d.s.Files = plainFiles(root)
	for i := range steps {
		step := fmt.Sprint(i)
		d.mkdir(step)
		for k := range 10 {
			d.write(fmt.Sprintf("%s/m%d.safetensors", step, k), 1)
		}
		p := filepath.Join(d.run, step, "metrics.json")
		if err := os.WriteFile(p, []byte(`{"val_loss": 1}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // finalizers and pools
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	if n := len(d.has(d.s)); n != steps {
		t.Fatalf("%d steps", n)
	}
	each := (heap() - before) / steps
	t.Logf("%d bytes a step", each)
	if each > most {
		t.Errorf("%d bytes a step, want at most %d", each, most)
	}
	runtime.KeepAlive(d)
}
