package commands

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

type loggedStep struct {
	Step       string         `json:"step"`
	State      string         `json:"state"`
	Files      int            `json:"files"`
	Logical    int64          `json:"logical_bytes"`
	New        int64          `json:"new_bytes"`
	SharedWith string         `json:"shared_with"`
	Metrics    map[string]any `json:"metrics"`
}

// runLog is what `ckptfs log` says, by step.
func runLog(m *mounttest.Mount, run string) map[string]loggedStep {
	m.T.Helper()
	var l struct {
		Steps []loggedStep `json:"steps"`
	}
	m.JSON(&l, "log", "--json", run)
	out := map[string]loggedStep{}
	for _, s := range l.Steps {
		out[s.Step] = s
	}
	return out
}

// TestRunsAndMetrics: programs save steps and metrics as files and attributes; the commands know them at
// once, mounted, by the store's folder, and unmounted.
func TestRunsAndMetrics(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		frozen := mounttest.Noise(1, 2*mib)
		for i, loss := range []string{"0.5", "NaN", "0.25"} {
			step := fmt.Sprintf("runs/a/checkpoint-%d", 90+10*i)
			m.Must(os.MkdirAll(m.Path(step), 0o755))
			b, _ := mounttest.SafetensorsOf([]string{"frozen", "head"},
				[][]byte{frozen, mounttest.Noise(uint64(10+i), mib)})
			m.Write(step+"/model.safetensors", b)
			m.Write(step+"/metrics.json", []byte(`{"loss": `+loss+`}`))
			m.Must(unix.Setxattr(m.Path(step), "user.metric.acc", []byte(fmt.Sprint(i)), 0))
		}
		b, err := json.Marshal(map[string]any{"global_step": 7, "log_history": []any{
			map[string]any{"step": 3, "eval_loss": 9}, map[string]any{"step": 7, "eval_loss": 0.125}}})
		m.Must(err)
		m.Must(os.MkdirAll(m.Path("runs/hf/checkpoint-7"), 0o755))
		m.Write("runs/hf/checkpoint-7/trainer_state.json", b)
		var best struct {
			Step  string `json:"step"`
			Path  string `json:"path"`
			Value float64
		}
		m.JSON(&best, "best", "--json", m.Path("runs/a"), "loss") // right after the last close
		if best.Step != "checkpoint-110" || best.Value != 0.25 {
			t.Errorf("%+v", best)
		}
		m.Sync()
		check := func(where, tree string) {
			t.Helper()
			var l struct {
				Runs []struct {
					Run      string
					Steps    int
					Complete int
				}
			}
			m.JSON(&l, "runs", "--json", filepath.Dir(tree))
			if len(l.Runs) != 2 || l.Runs[0].Run != "a" || l.Runs[0].Steps != 3 || l.Runs[0].Complete != 3 ||
				l.Runs[1].Run != "hf" {
				t.Errorf("%s: %+v", where, l)
			}
			steps := runLog(m, tree+"/a")
			first, second := steps["checkpoint-90"], steps["checkpoint-100"]
			if first.New < 3*mib || second.New < mib || second.New > mib+64<<10 ||
				second.SharedWith != "checkpoint-90" || second.Metrics["loss"] != "nan" {
				t.Errorf("%s: %+v", where, steps)
			}
			m.JSON(&best, "best", "--json", tree+"/a", "acc", "--mode", "max")
			if best.Step != "checkpoint-110" || best.Path != tree+"/a/checkpoint-110" {
				t.Errorf("%s: %+v", where, best)
			}
			m.JSON(&best, "best", "--json", tree+"/hf", "eval_loss")
			if best.Step != "checkpoint-7" || best.Value != 0.125 {
				t.Errorf("%s: %+v", where, best)
			}
			if said := m.Run("best", tree+"/a", "loss"); !strings.HasPrefix(said, tree+"/a/checkpoint-110  loss=0.25") {
				t.Errorf("%s: best said %q", where, said)
			}
			for _, bad := range [][]string{{"best", tree + "/a", "speed"}, {"log", tree + "/none"},
				{"log", tree + "/a/checkpoint-90"}} {
				if said, code := m.RunFails(bad...); code == 0 || code == exitUsage && bad[0] != "log" {
					t.Errorf("%s: %v: %d, %s", where, bad, code, said)
				}
			}
		}
		check("mounted", m.Path("runs"))
		check("by the store", filepath.Join(m.Store, "tree", "runs"))
		m.Must(m.Stop())
		check("unmounted", filepath.Join(m.Store, "tree", "runs"))
		m.Must(m.Start())
		check("mounted again", m.Path("runs"))
	})
}

// TestTornStep: a step that a killed daemon left unfinished is listed as that, and is not the best of its
// run.
func TestTornStep(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		for i := range 2 {
			step := fmt.Sprintf("runs/a/%d", i)
			m.Must(os.MkdirAll(m.Path(step), 0o755))
			m.Write(step+"/model.bin", mounttest.Noise(uint64(i), mib))
			m.Write(step+"/metrics.json", fmt.Appendf(nil, `{"loss": %d}`, 9-i))
		}
		f, err := os.Create(m.Path("runs/a/1/optimizer.bin"))
		m.Must(err)
		defer f.Close()
		_, err = f.Write(mounttest.Noise(5, mib))
		m.Must(err)
		state := func(want string) {
			t.Helper()
			if s := runLog(m, m.Path("runs/a")); s["1"].State != want || s["0"].State != "complete" {
				t.Errorf("want %s: %+v", want, s)
			}
		}
		state("writing")
		m.Kill()
		f.Close()
		m.Must(m.Start())
		state("torn")
		if said := m.Run("best", m.Path("runs/a"), "loss"); !strings.Contains(said, "runs/a/0 ") {
			t.Errorf("best said %q", said)
		}
		if said := m.Run("runs", m.Dir); !strings.Contains(said, "1 torn") {
			t.Errorf("runs said %q", said)
		}
		m.Sync()
		m.Must(m.Stop())
		m.Must(m.Start())
		state("torn")
		m.Sh("touch runs/a/1/optimizer.bin") // who knows that it is whole says so
		state("complete")
		if said := m.Run("best", m.Path("runs/a"), "loss"); !strings.Contains(said, "runs/a/1 ") {
			t.Errorf("best said %q", said)
		}
	})
}

// TestStepOfKilledProgram: a step is torn whose program was killed while it wrote, and no other.
func TestStepOfKilledProgram(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		m.Must(os.MkdirAll(m.Path("runs/a/1"), 0o755))
		state := func(what, want string) {
			t.Helper()
			if s := runLog(m, m.Path("runs/a")); s["1"].State != want {
				t.Errorf("%s: %s, want %s", what, s["1"].State, want)
			}
		}
		// end is what the program does when half of its file is written, and the file open.
		write := func(end string) {
			t.Helper()
			program := "import os, sys, threading, time\n" +
				"f = open(sys.argv[1], 'wb', 0)\n" +
				"f.write(b'x' * 1000000)\n" + end
			c := exec.Command("python3", "-c", program, m.Path("runs/a/1/model.bin"))
			if out, err := c.CombinedOutput(); len(out) > 0 {
				t.Fatalf("%v, %s", err, out)
			}
		}
		thread := "threading.Thread(target=time.sleep, args=[60], daemon=True).start()\n"
		for what, end := range map[string]string{"killed": "os.kill(os.getpid(), 9)\n",
			"terminated, with threads": thread + "os.kill(os.getpid(), 15)\n",
			"killed by a thread":       "threading.Thread(target=os.kill, args=[os.getpid(), 9]).start()\ntime.sleep(60)\n",
			"aborted":                  "os.abort()\n"} {
			write(end)
			state(what, "torn")
			for what, end := range map[string]string{"closed": "f.close()\n", "ended": "sys.exit(1)\n",
				"ended at once, with threads": thread + "os._exit(0)\n"} {
				write(end)
				state(what, "complete")
			}
		}
	})
}

// TestDiffAndFind: a checkpoint that torch changed differs from the first in the tensor that changed,
// whatever the format, mounted and not; what is equal is not read. Links lead to the best step.
func TestDiffAndFind(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	for _, d := range []string{"runs/a/1", "runs/a/2", "runs/b/1"} {
		m.Must(os.MkdirAll(m.Path(d), 0o755))
	}
	mounttest.RunPython(t, "save.py", "plain", "1", m.Path("runs/a/1/model.pt"), m.Path("runs/b/1/other.safetensors"))
	mounttest.RunPython(t, "change.py", m.Path("runs/a/1/model.pt"), m.Path("runs/a/2/model.pt"),
		"layers.3.weight")
	m.Write("runs/a/1/metrics.json", []byte(`{"loss": 2}`))
	m.Write("runs/a/2/metrics.json", []byte(`{"loss": 1}`))
	m.Sync()
	for mode, want := range map[string]string{"min": "../../../runs/a/2", "max": "../../../runs/a/1"} {
		if to, err := os.Readlink(m.Path(".ckptfs/best/a/loss." + mode)); to != want || err != nil {
			t.Errorf("%s: %q, %v", mode, to, err)
		}
	}
	if _, err := os.Stat(m.Path(".ckptfs/best/a/loss.min/model.pt")); err != nil {
		t.Error(err)
	}
	check := func(where, tree string) {
		t.Helper()
		var d struct {
			Equal   int
			Changed []struct {
				Name  string
				Share float64
				Max   float64 `json:"max_abs"`
			}
			Added, Removed, Reshaped []struct{ Name string }
			Read                     int64 `json:"read_bytes"`
		}
		for _, pair := range [][2]string{{"a/1/model.pt", "a/2/model.pt"}, {"b/1", "a/2"}, {"b", "a"}, {"b/1/other.safetensors", "a/2/model.pt"}} {
			m.JSON(&d, "diff", "--json", tree+"/"+pair[0], tree+"/"+pair[1])
			if d.Equal != 7 || len(d.Changed) != 1 || d.Changed[0].Name != "layers.3.weight" ||
				d.Changed[0].Max == 0 ||
				len(d.Added)+len(d.Removed)+len(d.Reshaped) != 0 || d.Read != 2*mib {
				t.Errorf("%s: %v: %+v", where, pair, d)
			}
		}
		if said := m.Run("diff", tree+"/a/1", tree+"/a/2"); !strings.Contains(said, "layers.3.weight") ||
			!strings.Contains(said, "7 tensors equal") {
			t.Errorf("%s: diff said %s", where, said)
		}
		said := m.Run("find", "--like", tree+"/a/1/model.pt:layers.0.weight")
		for _, holder := range []string{"runs/a/1/model.pt:layers.0.weight", "runs/a/2/model.pt:layers.0.weight", "runs/b/1/other.safetensors:layers.0.weight"} {
			if !strings.Contains(said, holder) {
				t.Errorf("%s: find said %s", where, said)
			}
		}
		for _, bad := range [][]string{{"find", "--like", tree + "/a/1/model.pt:nothing"}, {"find", tree, "--tensor", "12"}, {"diff", tree + "/a/1", tree + "/none"}} {
			if said, code := m.RunFails(bad...); code == 0 {
				t.Errorf("%s: %v: %s", where, bad, said)
			}
		}
	}
	check("mounted", m.Path("runs"))
	m.EvictAll()
	check("evicted", m.Path("runs"))
	m.Must(m.Stop())
	check("unmounted", filepath.Join(m.Store, "tree", "runs"))
	m.Must(m.Start())
}
