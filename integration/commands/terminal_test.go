package commands

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestTreeAndPlot shows runs that come from each other, and the curve of one, mounted and unmounted.
func TestTreeAndPlot(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	n := 0
	step := func(run string, step int, loss, parent string) {
		t.Helper()
		n++
		dir := fmt.Sprintf("runs/%s/%d", run, step)
		file, _ := mounttest.SafetensorsOf([]string{"w"}, [][]byte{mounttest.Noise(uint64(n), mib)})
		m.Write(dir+"/model.safetensors", file)
		m.Write(dir+"/metrics.json", []byte(`{"loss": `+loss+`}`))
		if parent != "" {
			m.Write(dir+"/lineage.json", []byte(`{"parent": "`+parent+`"}`))
		}
	}
	for i, loss := range []string{"2.0", "1.0", "NaN", "0.5"} {
		step("base", 100*(i+1), loss, "")
	}
	step("tune", 1, "0.25", "runs/base/300")
	step("tune", 2, "0.125", "")
	step("more", 7, "0.1", "runs/tune/1")
	m.Run("sync", m.Dir)
	look := func(at string) {
		t.Helper()
		var v struct {
			Runs []struct {
				Run, From   string
				Steps       int
				LastMetrics map[string]float64 `json:"last_metrics"`
			}
		}
		m.JSON(&v, "runs", "--tree", "--json", at)
		if got := fmt.Sprint(v.Runs); got != "[{base  4 map[loss:0.5]} {more runs/tune/1 1 map[loss:0.1]} "+
			"{tune runs/base/300 2 map[loss:0.125]}]" {
			t.Errorf("%s", got)
		}
		tree := strings.Split(m.Run("runs", "--tree", at), "\n")
		for i, want := range []string{"RUN ", "base ", "└─ tune     base/300 ", "   └─ more  tune/1 "} {
			if !strings.HasPrefix(tree[i], want) {
				t.Errorf("%q, want %q", tree[i], want)
			}
		}
	}
	plot := func(at string) {
		t.Helper()
		said := m.Run("log", "--plot", at, "loss")
		mounttest.WantSaid(t, said, "loss: last 0.5 at 400, least 0.5 at 400, greatest 2 at 100, 1 value not finite",
			"  2 ┤", "0.5 ┤")
		if lines := strings.Split(strings.TrimSpace(said), "\n"); len(lines) != 12 ||
			!strings.HasSuffix(lines[11], "400") {
			t.Errorf("%s", said)
		}
	}
	look(m.Dir)
	plot(m.Path("runs/base"))
	said, code := m.RunFails("log", "--plot", m.Path("runs/base"), "acc")
	if code != 1 {
		t.Errorf("exit %d", code)
	}
	mounttest.WantSaid(t, said, "no metric", "loss")
	m.Must(m.Stop())
	look(m.Store)
	plot(filepath.Join(m.Store, "tree/runs/base"))
}
