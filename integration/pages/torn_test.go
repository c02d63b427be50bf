package pages

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// tear has a program be killed that saves a file to the only step, or the last one, of a run. The mount does
// not learn of each kill: where others keep the machine busy it may be late to ask how the program ended.
func tear(m *mounttest.Mount, run, file string, p []byte) {
	m.T.Helper()
	m.Must(daemon.Until("a torn step", func() bool {
		killedSave(m, file, p)
		all := at(decoded(m, "log", "--json", m.Path("runs", run)), "steps").([]any)
		return at(all[len(all)-1], "state") == "torn"
	}))
}

// killedSave is a program that saves a file, and is killed when it wrote half of it.
func killedSave(m *mounttest.Mount, file string, p []byte) {
	m.T.Helper()
	half := m.T.TempDir() + "/half"
	m.Must(os.WriteFile(half, p[:len(p)/2], 0o644))
	cmd := exec.Command("sh", "-c", `exec cat "$2" - >"$1"`, "sh", m.Path(file), half)
	in, err := cmd.StdinPipe() // what it waits for
	m.Must(err)
	defer in.Close()
	m.Must(cmd.Start())
	m.Must(daemon.Until("half of the file", func() bool {
		st, err := os.Stat(m.Path(file))
		return err == nil && st.Size() == int64(len(p)/2)
	}))
	m.Must(cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
}

// A step whose writer was killed has pages like others: they say what it is, and what to do.
func TestTorn(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	for step := 1; step <= 3; step++ {
		m.Must(os.MkdirAll(m.Path("runs/a", fmt.Sprint(step)), 0o755))
		b, _ := mounttest.SafetensorsOf([]string{"layers.0.w", "layers.1.w"},
			[][]byte{mounttest.Noise(9, 64<<10), mounttest.Noise(uint64(step), 64<<10)})
		file := fmt.Sprintf("runs/a/%d/model.safetensors", step)
		m.Write(fmt.Sprintf("runs/a/%d/metrics.json", step), fmt.Appendf(nil, `{"val_loss": %d}`, 4-step))
		if step < 3 {
			m.Write(file, b)
			continue
		}
		tear(m, "a", file, b)
		m.Must(os.MkdirAll(m.Path("runs/b/1"), 0o755))
		tear(m, "b", "runs/b/1/model.safetensors", b[:200])
	}
	m.Sync()
	b := open(t, serve(t, m.Dir))
	program := axe(t)
	main := func() string { return b.text(`document.getElementById("main").innerText`) }
	const killed, remove = "was killed while it wrote a file there", "rm -r "
	for _, p := range []struct {
		path string
		says []string
	}{
		{"/", []string{"Torn steps", "runs/a/3", "runs/b/1", "ckptfs runs " + m.Dir}},
		{"/runs", []string{"1 torn"}},
		{"/run?run=a", []string{"2 complete, 1 torn", killed, remove + m.Path("runs/a/3"), m.Path(".ckptfs/latest/a")}},
		{"/run?run=b", []string{"1 torn", killed, remove + m.Path("runs/b/1"), "No step of the run is whole yet"}},
		{"/path?path=runs/a/3", []string{"what wrote it was killed", killed, remove + m.Path("runs/a/3"),
			"No tensors are known in it"}},
		{"/path?path=runs/a/3/model.safetensors", []string{killed, "No tensors are known in it"}},
		{"/path?path=runs/b/1", []string{killed, "No tensors are known in it"}},
		{"/diff?a=runs/a/2&b=runs/a/3", []string{"Step 3 of a is torn"}},
		{"/compare?run=a&run=b", nil},
		{"/lineage", nil},
		{"/lineage?path=runs/a/3", []string{"No models are known there"}},
		{"/space?path=runs/a", nil},
	} {
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.visit(p.path)
			b.sound()
			b.accessible(program, scheme)
			if w := eval[int](b, "document.documentElement.scrollWidth"); w > 1000 {
				t.Errorf("%s: the page is %d wide: %s", p.path, w, b.text(wide))
			}
		}
		said := main()
		for _, want := range p.says {
			if !strings.Contains(said, want) {
				t.Errorf("%s: does not say %q: %s", p.path, want, said)
			}
		}
	}
	for path, want := range map[string]bool{"runs/a/2": true, "runs/a/3": false, "runs/a/3/model.safetensors": false} {
		b.visit("/path?path=" + path)
		if has := strings.Contains(b.text("document.body.textContent"), "ckptfs lineage "); has != want {
			t.Errorf("%s: the command lineage is offered: %v", path, has)
		}
	}
	// A complete step of the run says nothing of that; nor does any, once the file is saved again.
	b.visit("/path?path=runs/a/2")
	if said := main(); strings.Contains(said, killed) {
		t.Errorf("step 2: %s", said)
	}
	whole, _ := mounttest.SafetensorsOf([]string{"layers.0.w"}, [][]byte{mounttest.Noise(9, 64<<10)})
	m.Write("runs/a/3/model.safetensors", whole)
	m.Sync()
	m.Must(daemon.Until("a complete step", func() bool {
		b.visit("/run?run=a")
		said := main()
		return !strings.Contains(said, "torn") && strings.Contains(said, "3 complete")
	}))
	b.sound()
}

// An empty store has pages that say how to begin.
func TestEmpty(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	b := open(t, serve(t, m.Dir))
	for path, want := range map[string]string{"/": m.Path("runs/first/1/model.pt"), "/runs": "There are no runs yet",
		"/lineage": "There are no models yet", "/space?path=": "Nothing is in it", "/path?path=": "nothing is in it",
		"/compare": "Choose runs", "/diff": "Name two"} {
		b.visit(path)
		b.sound()
		if said := b.text(`document.getElementById("main").innerText`); !strings.Contains(said, want) {
			t.Errorf("%s: does not say %q: %s", path, want, said)
		}
	}
	m.Must(os.MkdirAll(m.Path("runs/a/1"), 0o755))
	m.Write("runs/a/1/model.safetensors", tensorFile(func(yield func(string) bool) { yield("w") }))
	m.Sync()
	b.visit("/run?run=a") // without metrics
	b.sound()
	if said := b.text(`document.getElementById("main").innerText`); !strings.Contains(said, "No step has metrics") {
		t.Error(said)
	}
}
