package volume

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

func (r *rig) runLog(run string) map[string]control.Step {
	r.t.Helper()
	l, err := r.Log(context.Background(), run, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]control.Step{}
	for _, s := range l.Steps {
		out[s.Step] = s
	}
	return out
}

func (r *rig) best(run, metric, mode string) string {
	r.t.Helper()
	b, err := r.Best(context.Background(), run, metric, mode)
	if err != nil {
		return err.Error()
	}
	return b.Step
}

func (r *rig) setMetric(dir, name, value string) {
	r.t.Helper()
	n := r.find(dir)
	defer r.forget(n)
	if err := r.SetXattr(n, "user.metric."+name, []byte(value), 0); err != nil {
		r.t.Fatal(err)
	}
}

// Steps are in the order of people; metrics come from all sources; NaN never wins; what changes is seen.
func TestRuns(t *testing.T) {
	r := newRig(t)
	for _, step := range []string{"9", "10", "100"} {
		r.mkdir("runs/a/" + step)
		r.write("runs/a/"+step+"/model.bin", random(100<<10, uint64(len(step))))
	}
	r.mkdir("runs/a/empty")
	r.mkdir("runs/b")
	r.mkdir("runs/.hidden/1")
	r.write("runs/stray", nil)
	r.write("runs/a/9/metrics.json", []byte(`{"val": {"loss": 0.5}, "acc": 1, "note": "x"}`))
	r.write("runs/a/10/metrics.json", []byte(`{"val": {"loss": NaN}, "acc": 3}`))
	r.write("runs/a/100/metrics.json", []byte(`{"val": {"loss": 0.25}}`))
	r.setMetric("runs/a/100", "acc", "2")
	r.setMetric("runs/a/100", "val/loss", "0.75")

	l, err := r.Runs(context.Background())
	if err != nil || len(l.Runs) != 2 || l.Runs[0].Run != "a" || l.Runs[0].Steps != 3 ||
		l.Runs[0].Complete != 3 || l.Runs[1].Steps != 0 ||
		strings.Join(l.Runs[0].Metrics, " ") != "acc val/loss" {
		t.Fatalf("%+v, %v", l, err)
	}
	if _, err := r.Log(context.Background(), "", nil); !errors.Is(err, unix.EINVAL) ||
		!strings.HasPrefix(err.Error(), "the root is no run") {
		t.Error(err)
	}
	full, err := r.Log(context.Background(), "runs/a", nil)
	if err != nil || len(full.Steps) != 3 || full.Steps[0].Step != "9" || full.Steps[1].Step != "10" ||
		full.Steps[2].Step != "100" {
		t.Fatalf("%+v, %v", full, err)
	}
	if v := float64(full.Steps[1].Metrics["val/loss"]); !math.IsNaN(v) {
		t.Errorf("val/loss of 10 is %v", v)
	}
	for _, tc := range [][3]string{{"val/loss", "min", "9"}, {"val/loss", "max", "100"}, {"acc", "max", "10"},
		{"acc", "min", "9"}} {
		if got := r.best("runs/a", tc[0], tc[1]); got != tc[2] {
			t.Errorf("best %s %s is %s, want %s", tc[0], tc[1], got, tc[2])
		}
	}
	// A file that is written again, which no directory's time shows; an attribute that goes; a step that
	// moves.
	r.write("runs/a/9/metrics.json", []byte(`{"val": {"loss": 5}, "acc": 1}`))
	if got := r.best("runs/a", "val/loss", "min"); got != "100" {
		t.Errorf("best is %s", got)
	}
	n := r.find("runs/a/100")
	if err := r.RemoveXattr(n, "user.metric.val/loss"); err != nil {
		t.Fatal(err)
	}
	r.forget(n)
	if b, err := r.Best(context.Background(), "runs/a", "val/loss", "min"); err != nil || b.Value != 0.25 ||
		b.Path != "runs/a/100" {
		t.Errorf("%+v, %v", b, err)
	}
	r.rename("runs/a/100", "runs/a/.gone")
	if got := r.best("runs/a", "val/loss", "min"); got != "9" {
		t.Errorf("best is %s", got)
	}
	for _, tc := range [][2]string{{"runs/none", "acc"}, {"runs/a", "speed"}, {"elsewhere", "acc"},
		{"runs/a/9", "acc"}, {"", "acc"}} {
		if b, err := r.Best(context.Background(), tc[0], tc[1], "min"); err == nil {
			t.Errorf("%s %s: %+v", tc[0], tc[1], b)
		}
	}
	if err := r.best("runs/a", "speed", "min"); !strings.Contains(err, "acc, val/loss") {
		t.Errorf("it does not name the metrics: %s", err)
	}
	// A source that is none is its step's problem.
	r.write("runs/a/9/metrics.json", []byte(`{"acc": `))
	if s := r.runLog("runs/a"); s["9"].Problem == "" || len(s["9"].Metrics) != 0 || s["10"].Problem != "" {
		t.Errorf("%+v", s)
	}
	if got := r.best("runs/a", "acc", "min"); got != "10" {
		t.Errorf("best is %s", got)
	}
}

// What a step adds is counted by chunks, packed or hollow.
func TestLogCountsWhatIsNew(t *testing.T) {
	r := newRig(t)
	frozen, a, b := random(600<<10, 1), random(300<<10, 2), random(300<<10, 3)
	for i, w := range [][]byte{a, b, a} {
		dir := fmt.Sprintf("runs/a/%d", i+1)
		r.mkdir(dir)
		r.write(dir+"/m.safetensors", weights(t, []string{"frozen", "head"}, frozen, w))
	}
	r.sync()
	for range 2 {
		s := r.runLog("runs/a")
		if n := s["1"].NewBytes; n < 900<<10 || n > 902<<10 || s["1"].SharedWith != "" {
			t.Errorf("%+v", s["1"])
		}
		if n := s["2"].NewBytes; n < 300<<10 || n > 302<<10 || s["2"].SharedWith != "1" ||
			s["2"].SharedBytes < 600<<10 {
			t.Errorf("%+v", s["2"])
		}
		if n := s["3"].NewBytes; n > 2<<10 || s["3"].SharedWith != "2" || s["3"].PlainBytes != 0 {
			t.Errorf("%+v", s["3"])
		}
		if sum := s["1"].StoredBytes + s["2"].StoredBytes + s["3"].StoredBytes; sum != r.records() ||
			s["1"].StoredBytes < 900<<10 || s["2"].StoredBytes < 300<<10 || s["3"].StoredBytes > 4<<10 {
			t.Errorf("stored are %d, %d, %d of %d", s["1"].StoredBytes, s["2"].StoredBytes, s["3"].StoredBytes,
				r.records())
		}
		r.evictAll()
	}
}

// A step is not complete while a file of it is written. One that a killed daemon left so is torn, until it is
// written again.
func TestTornSteps(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs/a/1/deep")
	r.mkdir("runs/a/2")
	r.write("runs/a/1/model.bin", random(100<<10, 1))
	r.write("runs/a/1/metrics.json", []byte(`{"loss": 1}`))
	r.write("runs/a/2/metrics.json", []byte(`{"loss": 2}`))
	state := func(r *rig, step, want string) {
		t.Helper()
		if got := r.runLog("runs/a")[step].State; got != want {
			t.Errorf("step %s is %q, want %q", step, got, want)
		}
	}
	h := r.open("runs/a/1/deep/opt.bin", unix.O_WRONLY|unix.O_CREAT)
	r.writeAt(h, random(10<<10, 2), 0)
	state(r, "1", control.StepWriting)
	if got := r.best("runs/a", "loss", "min"); got != "2" {
		t.Errorf("best is %s", got)
	}
	c := r.killed()
	state(c, "1", control.StepTorn)
	state(c, "2", control.StepComplete)
	if got := c.best("runs/a", "loss", "min"); got != "2" {
		t.Errorf("best is %s", got)
	}
	c.sync()
	c = c.reopen() // an end in order makes it no better
	state(c, "1", control.StepTorn)
	c.write("runs/a/1/deep/opt.bin", random(20<<10, 2))
	state(c, "1", control.StepComplete)
	r.release(h)
	state(r, "1", control.StepComplete)

	// A step that was removed is no longer torn, also if its inode is used again.
	h = r.open("runs/a/2/opt.bin", unix.O_WRONLY|unix.O_CREAT)
	c = r.killed()
	state(c, "2", control.StepTorn)
	if err := c.remove(c.dirNode("runs/a/2"), "opt.bin", 0); err != nil {
		t.Fatal(err)
	}
	c.write("runs/a/2/fresh.bin", random(1000, 1))
	state(c, "2", control.StepComplete)
	r.release(h)

	r.rename("runs/a/2", "runs/a/tmp-checkpoint-2")
	state(r, "tmp-checkpoint-2", control.StepWriting)
}

// A step is torn if a program was killed that was writing it, and is not if that closed a copy of a
// descriptor of what was whole.
func TestStepOfKilledProgram(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs/a/1")
	state := func(want string) {
		t.Helper()
		if got := r.runLog("runs/a")["1"].State; got != want {
			t.Errorf("the step is %q, want %q", got, want)
		}
	}
	const p = "runs/a/1/model.bin"
	tear := func() {
		t.Helper()
		h := r.open(p, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
		r.writeAt(h, random(10<<10, 2), 0)
		r.Flush(h, dying)
		h.Release()
		state(control.StepTorn)
	}
	tear()
	r.reopen()
	state(control.StepTorn)
	r.write(p, random(20<<10, 2))
	state(control.StepComplete)

	tear()
	h := r.open(p, unix.O_WRONLY) // as touch does
	r.release(h)
	state(control.StepComplete)

	// A child that was started meanwhile has copies of the saver's descriptors.
	h = r.open(p, unix.O_WRONLY)
	written := func() time.Time {
		st, err := os.Stat(r.at("tree", p))
		if err != nil {
			t.Fatal(err)
		}
		return st.ModTime()
	}
	r.writeAt(h, random(10<<10, 3), 0)
	r.Flush(h, alive) // the child closes its own, and the saver goes on
	closed := time.Now()
	r.eventually("the clock of files goes on", func() bool {
		r.writeAt(h, random(10<<10, 4), 10<<10)
		return written().After(closed)
	})
	state(control.StepWriting)
	r.Flush(h, dying)
	h.Release()
	state(control.StepTorn)

	h = r.open(p, unix.O_WRONLY)
	r.writeAt(h, random(10<<10, 3), 0)
	r.Flush(h, alive)
	r.Flush(h, dying) // the child is killed when the saver is done
	h.Release()
	state(control.StepComplete)

	r.eventually("what was written is older", func() bool { return time.Since(written()) > 100*time.Millisecond })
	h = r.open(p, unix.O_WRONLY) // of who writes nothing
	r.Flush(h, dying)
	h.Release()
	state(control.StepComplete)

	tear()
	if err := r.remove(r.dirNode("runs/a/1"), "model.bin", 0); err != nil {
		t.Fatal(err)
	}
	r.write("runs/a/1/fresh.bin", random(1000, 1))
	state(control.StepComplete)
}

// dirNode finds a directory; it stays known.
func (r *rig) dirNode(p string) *names.Node {
	r.t.Helper()
	n := r.find(p)
	r.test.Cleanup(func() { r.forget(n) })
	return n
}

// killed is what a kill -9 leaves, in its place: the inodes are those that they were. The rig must not go on
// but to let go of what it has.
func (r *rig) killed(set ...func(*Options)) *rig {
	r.t.Helper()
	to := r.copyStore()
	// A copy has other inodes. The file that lists those that were being written gets the new ones.
	translateWriting(r.test, r.dir, to)
	return openRig(r.test, to, set...)
}

// Many runs are answered from what is known: see BenchmarkRuns for how fast.
func TestRunsAreRemembered(t *testing.T) {
	r := newRig(t)
	top := r.at("tree", "runs")
	manyRuns(t, top, 20, 10)
	for range 2 {
		l, err := r.Runs(context.Background())
		if err != nil || len(l.Runs) != 20 || l.Runs[7].Steps != 10 {
			t.Fatalf("%v, %v", l, err)
		}
		if got := r.best("runs/r7", "loss", "min"); got != "10" {
			t.Errorf("best is %s", got)
		}
	}
	if r.steps.Known() != 20 {
		t.Errorf("%d runs are known", r.steps.Known())
	}
	r.rename("runs/r3", "elsewhere")
	if l, err := r.Runs(context.Background()); err != nil || len(l.Runs) != 19 || r.steps.Known() != 19 {
		t.Errorf("%v, %v", l, err)
	}
}

func manyRuns(t testing.TB, top string, n, steps int) {
	t.Helper()
	for i := range n {
		for j := range steps {
			dir := filepath.Join(top, fmt.Sprintf("r%d", i), fmt.Sprint(j+1))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for name, s := range map[string]string{"model.bin": "weights",
				"metrics.json": fmt.Sprintf(`{"loss": %d}`, steps-j)} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(s), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// BenchmarkRuns: 1,000 runs of 100 steps, warm.
func BenchmarkRuns(b *testing.B) {
	r := newRig(b)
	manyRuns(b, r.at("tree", "runs"), 1000, 100)
	if _, err := r.Runs(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.Run("runs", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.Runs(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("best", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.Best(context.Background(), "runs/r77", "loss", "min"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// translateWriting lists in a copy of a store which of its files had writers.
func translateWriting(t testing.TB, from, to string) {
	t.Helper()
	p, err := os.ReadFile(filepath.Join(from, tree.WritingFile))
	if err != nil {
		t.Fatal(err)
	}
	had := map[uint64]bool{}
	for p = p[64:]; len(p) >= 8; p = p[8:] {
		had[binary.LittleEndian.Uint64(p)] = true
	}
	d, err := tree.OpenStore(to, false)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	w, err := tree.OpenWriting(d, true, false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	top := filepath.Join(from, tree.TreeDir)
	err = filepath.WalkDir(top, func(path string, _ os.DirEntry, err error) error {
		var was, is unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &was)
		}
		if err == nil {
			err = unix.Lstat(filepath.Join(to, tree.TreeDir, strings.TrimPrefix(path, top)), &is)
		}
		if had[was.Ino] {
			w.Begin(is.Ino)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Lightning's checkpoints say how good they are, packed or not; what stands beside them wins.
func TestLightningScores(t *testing.T) {
	p, err := os.ReadFile("../../formats/testdata/torch/lightning.ckpt")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.mkdir("runs/a/1/checkpoints")
	r.write("runs/a/1/checkpoints/epoch=3.ckpt", p)
	r.mkdir("runs/a/2")
	r.write("runs/a/2/model.ckpt", p)
	r.write("runs/a/2/metrics.json", []byte(`{"val_loss": 0.25}`))
	r.mkdir("runs/a/3")
	r.write("runs/a/3/model.ckpt", p[:len(p)-1000]) // no zip at all: some other program's
	for range 2 {
		s := r.runLog("runs/a")
		if m := s["1"].Metrics; m["val_loss"] != 0.3125 || m["val/acc"] != 7 || len(m) != 2 {
			t.Errorf("%+v", s["1"])
		}
		if m := s["2"].Metrics; m["val_loss"] != 0.25 || len(m) != 2 || len(s["3"].Metrics) != 0 ||
			s["3"].Problem != "" {
			t.Errorf("%+v %+v", s["2"], s["3"])
		}
		r.sync()
		r.evictAll()
		r.setMetric("runs/a/1", "other", "1")
		n := r.find("runs/a/1")
		if err := r.RemoveXattr(n, "user.metric.other"); err != nil {
			t.Fatal(err)
		}
		r.forget(n)
	}
}

// A folder whose name begins with a dot is no run, also for a caller who asks for it by name, and not later.
func TestDotIsNoRun(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs")
	for _, run := range []string{"a", ".hid"} {
		for _, dir := range []string{"runs/" + run, "runs/" + run + "/1"} {
			r.mkdir(dir)
		}
		r.write("runs/"+run+"/1/model.bin", random(100<<10, 1))
	}
	r.sync()
	for range 2 {
		if _, err := r.Log(t.Context(), "runs/.hid", nil); err == nil ||
			!strings.Contains(err.Error(), "begins with a dot") {
			t.Errorf("log: %v", err)
		}
		if _, err := r.Best(t.Context(), "runs/.hid", "loss", "min"); err == nil {
			t.Error("it has a best step")
		}
		l, err := r.Runs(t.Context())
		if err != nil || len(l.Runs) != 1 || l.Runs[0].Run != "a" {
			t.Errorf("%+v, %v", l, err)
		}
		r = r.reopen()
	}
}
