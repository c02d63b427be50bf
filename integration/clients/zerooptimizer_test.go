package clients

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ckptfs/integration/mounttest"
)

// TestForgetZero: old steps of DeepSpeed's ZeRO, of stages 1 to 3, lose their optimizer's state by a rule, and
// keep the weights, which lie among it: those that zero_to_fp32 makes.
func TestForgetZero(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	from, err := filepath.Abs("../../formats/testdata/zero")
	m.Must(err)
	const weights = "model.weights.safetensors"
	stays := map[string][]string{}   // by run, in each step
	removed := map[string][]string{} // the same
	folder := func(run, step string) string {
		return "runs/" + run + "/checkpoint-" + step + "/global_step" + step
	}
	holds := func(run, step string, want ...string) { // besides the views of each file
		t.Helper()
		got := slices.DeleteFunc(m.Names(folder(run, step)), func(name string) bool {
			return strings.HasSuffix(name, "_states.safetensors")
		})
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s holds %q, want %q", folder(run, step), got, want)
		}
	}
	old := time.Now().Add(-48 * time.Hour)
	for _, run := range []string{"stage1", "stage2", "stage3"} {
		list, err := os.ReadDir(filepath.Join(from, run))
		m.Must(err)
		for _, e := range list {
			b, err := os.ReadFile(filepath.Join(from, run, e.Name()))
			m.Must(err)
			for _, step := range []string{"1", "2", "3", "4"} {
				m.Write(folder(run, step)+"/"+e.Name(), b)
				m.Must(os.Chtimes(m.Path(folder(run, step), e.Name()), old, old))
			}
			if strings.HasSuffix(e.Name(), "_optim_states.pt") {
				removed[run] = append(removed[run], e.Name())
			} else {
				stays[run] = append(stays[run], e.Name())
			}
		}
	}
	m.Sync()
	var out forgotten
	said, _ := m.RunFails("forget", "--drop-optimizer", m.Path(folder("stage3", "1"), removed["stage3"][0]))
	mounttest.WantSaid(t, said, "part of the weights")

	// A rule that is not of all files takes none of them.
	m.Run("policy", "add", "--in", m.Dir, "runs/stage3/checkpoint-1/*/*_rank_0_*", "drop-optimizer",
		"keep-last=2")
	said, code := m.RunFails("forget", "--policy", m.Path("runs/stage3"))
	mounttest.WantSaid(t, said, "no rule takes")
	if code != 7 {
		t.Errorf("exit code %d", code)
	}
	m.Run("policy", "add", "--in", m.Dir, "runs/**", "drop-optimizer", "keep-last=2")
	m.JSON(&out, "forget", "--policy", "--dry-run", "--json", m.Dir)
	if len(out.Files) != 6 || len(out.Skipped) != 0 {
		t.Errorf("%+v", out)
	}
	holds("stage3", "1", slices.Concat(removed["stage3"], stays["stage3"])...)

	// A step that lacks a part has no weights: it stays.
	missing := m.Path(folder("stage3", "2"), removed["stage3"][1])
	m.Must(os.Rename(missing, m.Path("aside")))
	said, _ = m.RunFails("forget", "--policy", m.Path("runs/stage3"))
	mounttest.WantSaid(t, said, folder("stage3", "2"), "1 of the 2 files")
	holds("stage3", "2", slices.Concat(removed["stage3"][:1], stays["stage3"])...)
	m.Must(os.Rename(m.Path("aside"), missing))

	m.JSON(&out, "forget", "--policy", "--json", m.Dir)
	if len(out.Files) != 5 || len(out.Skipped) != 0 { // runs/stage3 had lost that of one step
		t.Errorf("%+v", out)
	}
	for _, f := range out.Files {
		ranks := len(removed[strings.Split(f.File, "/")[1]])
		if f.Kept < 10 || f.Dropped != 6*ranks || f.NewSize >= f.Size || f.Weights != f.File+"/"+weights {
			t.Errorf("%+v", f)
		}
	}
	check := func() {
		t.Helper()
		for run := range stays {
			var files []string
			for _, step := range []string{"1", "2"} {
				holds(run, step, append([]string{weights}, stays[run]...)...)
				files = append(files, m.Path(folder(run, step), weights))
			}
			mounttest.RunPython(t, "zero_optimizer.py",
				append([]string{filepath.Join(from, run)}, files...)...)
			holds(run, "3", slices.Concat(removed[run], stays[run])...)
		}
	}
	check()
	var log struct {
		Steps []struct{ Step, State string }
	}
	m.JSON(&log, "log", "--json", m.Path("runs/stage3"))
	if len(log.Steps) != 4 || slices.ContainsFunc(log.Steps, func(s struct{ Step, State string }) bool {
		return s.State != "complete"
	}) {
		t.Errorf("%+v", log)
	}
	mounttest.WantSaid(t, m.Run("forget", "--policy", m.Dir), "0 files")

	// What an interrupted command left is removed by the next one, unless the weights are of another time.
	left := m.Path(folder("stage3", "1"), removed["stage3"][1])
	again := func(then time.Time) {
		b, err := os.ReadFile(filepath.Join(from, "stage3", removed["stage3"][1]))
		m.Must(err)
		m.Must(os.WriteFile(left, b, 0o644))
		m.Must(os.Chtimes(left, old, old))
		m.Must(os.Chtimes(m.Path(folder("stage3", "1"), stays["stage3"][0]), then, then))
	}
	again(old.Add(time.Second))
	m.RunFails("forget", "--policy", m.Path("runs/stage3"))
	if _, err := os.Stat(left); err != nil {
		t.Error(err)
	}
	again(old)
	m.Run("forget", "--policy", m.Path("runs/stage3"))
	m.EvictAll()
	m.Remount()
	check()
	m.Run("check", m.Dir)
}
