package pages

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

// longSteps is how many steps the long run has.
const longSteps = 2000

// trained is a mount with a model that torch trained, two fine-tunes of it, the two merged, a run of very
// many steps, and a step that a killed daemon left.
func trained(t *testing.T) *mounttest.Mount {
	t.Helper()
	m := mounttest.New(t)
	mounttest.RunPython(t, "tuned.py", m.Path("runs"))
	for i := range longSteps {
		dir := m.Path("runs/long", fmt.Sprint(i+1))
		m.Must(os.MkdirAll(dir, 0o755))
		m.Must(os.WriteFile(filepath.Join(dir, "metrics.json"), fmt.Appendf(nil, `{"val_loss": %g, "lr": %g}`,
			2+1/(1+float64(i)), 1e-3*math.Cos(float64(i)/longSteps)), 0o644))
	}
	for _, i := range []int{1, longSteps / 2, longSteps} {
		b, _ := mounttest.SafetensorsOf([]string{"layers.0.w", "layers.1.w"},
			[][]byte{mounttest.Noise(9, 64<<10), mounttest.Noise(uint64(i), 64<<10)})
		m.Must(os.WriteFile(m.Path("runs/long", fmt.Sprint(i), "model.safetensors"), b, 0o644))
	}
	m.Sync()
	m.Must(os.Mkdir(m.Path("runs/tune-all/600"), 0o755))
	m.Write("runs/tune-all/600/metrics.json", []byte(`{"val_loss": 0.0001, "acc": 0.999}`))
	f, err := os.Create(m.Path("runs/tune-all/600/model.pt"))
	m.Must(err)
	defer f.Close()
	_, err = f.Write(mounttest.Noise(5, mib))
	m.Must(err)
	m.Kill()
	f.Close()
	m.Must(m.Start())
	m.Sync()
	m.EvictAll()
	m.Must(unix.Access(m.Path("runs/merged/1/model.pt"), unix.R_OK))
	return m
}

// decoded is what a command prints with --json.
func decoded(m *mounttest.Mount, args ...string) any {
	m.T.Helper()
	var v any
	m.JSON(&v, args...)
	return v
}

// at is the value in a JSON document at keys.
func at(v any, keys ...string) any {
	for _, k := range keys {
		switch x := v.(type) {
		case map[string]any:
			v = x[k]
		case []any:
			var i int
			_, _ = fmt.Sscan(k, &i)
			if i >= len(x) {
				return nil
			}
			v = x[i]
		}
	}
	return v
}

// number is a number of a JSON document.
func number(t *testing.T, v any, keys ...string) float64 {
	t.Helper()
	f, ok := at(v, keys...).(float64)
	if !ok {
		b, _ := json.Marshal(v)
		t.Fatalf("no number at %v: %.500s", keys, b)
	}
	return f
}

// without is a JSON document without what differs by the moment at which it is asked for.
func without(v any, keys ...string) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			out[k] = without(e, keys...)
		}
		for _, k := range keys {
			delete(out, k)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i := range x {
			out[i] = without(x[i], keys...)
		}
		return out
	}
	return v
}
