package posix

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// viewTools is a folder of runs on the mount, where a view lies beside each model.pt, and the same in a plain
// folder, where the view's bytes are a file: whole folders can be copied, moved and removed on both, and stay
// the same.
type viewTools struct {
	*mounttest.Mount
	plain, src, plainSrc string
}

// shell runs a command below runs/, with $src a folder outside that holds steps to copy from.
func (v *viewTools) shell(root, src, command string) string {
	v.T.Helper()
	cmd := exec.Command("bash", "-euc", "set -o pipefail; umask 022; "+command)
	cmd.Dir = filepath.Join(root, "runs")
	cmd.Env = append(cmd.Environ(), "src="+src, "LC_ALL=C", "TZ=UTC")
	out, err := cmd.CombinedOutput()
	if err != nil {
		v.T.Fatalf("%s in %s: %v\n%s", command, root, err, out)
	}
	return strings.ReplaceAll(string(out), src, "SRC")
}

const viewListing = `find . -mindepth 1 -printf '%P %y %n\n' | sort; find . -type f -print0 | sort -z | xargs -0 -r sha256sum`

// both runs a command on both sides and compares what it says, and what there is afterwards.
func (v *viewTools) both(command string) {
	v.T.Helper()
	got, want := v.shell(v.Dir, v.src, command), v.shell(v.plain, v.plainSrc, command)
	if got != want {
		v.T.Errorf("%s says\n%s\nin a plain folder\n%s", command, got, want)
	}
	if got, want := v.shell(v.Dir, v.src, viewListing), v.shell(v.plain, v.plainSrc,
		viewListing); got != want {
		v.T.Fatalf("after %s there is\n%s\nin a plain folder\n%s", command, got, want)
	}
}

// viewCommands work on X, a step that is there, and Y, one that is not.
var viewCommands = []string{
	`cp -r X Y`,
	`cp -a X Y`,
	`rsync -a X/ Y/`,
	`rsync -a X/ Y/ && rsync -ain X/ Y/`,
	`mkdir Y && tar cf - -C X . | tar xf - -C Y`,
	`mv X Y`,
	`mkdir -p other && mv X other/Z && mv other/Z Y && rmdir other`,
	`mv X Y && cp -r Y X`,
	`cp -r X Y && rm -r X`,
	`rm -r X && cp -a "$src"/1 X`,
	`cp -a "$src"/2 Y`,
	`find X -type f -size +0 | sort`,
	`find X -name '*.safetensors' -exec cat {} + | sha256sum`,
	`d=$(mktemp -d) && cp -r X/. $d && diff -r X $d && rm -r $d`,
	`d=$(mktemp -d) && rsync -a X/ $d && rsync -ain X/ $d && rm -r $d`,
	`tar cf - X | tar df -`,
	`tar cf - X | tar tf - | sort`,
	`du -ab X | sed 's/[0-9]*\tX$//' | sort`,
	`ls X/*; stat -c '%n %s' X/*`,
	`mv X/model.pt X/a.tmp && mv X/a.tmp X/model.pt`,
	`cp X/model.safetensors X/copy && mv X/copy X/model.safetensors`,
}

// TestViewTools takes steps with views through what people do to folders, in random sequences, resident and
// evicted. CKPTFS_ROUNDS sets how many commands.
func TestViewTools(t *testing.T) {
	t.Parallel()
	rounds := 30
	if n, err := strconv.Atoi(os.Getenv("CKPTFS_ROUNDS")); err == nil {
		rounds = n
	}
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		v := &viewTools{Mount: m, plain: t.TempDir(), src: t.TempDir(), plainSrc: t.TempDir()}
		for _, d := range []string{m.Path("runs"), v.plain + "/runs"} {
			m.Must(os.MkdirAll(d, 0o755))
		}
		for _, step := range []string{"1", "2"} {
			// The view's bytes come from a step that is made on the mount for that, and removed.
			m.Must(os.MkdirAll(m.Path("runs", step), 0o755))
			mounttest.RunPython(t, "save.py", "nested", step, m.Path("runs", step, "model.pt"))
			m.Sh("echo '{}' >runs/" + step + "/notes.json")
			m.Sh("cp -r runs/" + step + " " + v.plainSrc + " && cp -r runs/" + step + " " + v.src +
				" && rm -r runs/" + step)
			m.Must(os.Remove(filepath.Join(v.src, step, "model.safetensors")))
		}
		v.both(`cp -r "$src"/1 s0; cp -r "$src"/2 s1`)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		for i := range rounds {
			steps := m.Names("runs")
			x, y := steps[r.IntN(len(steps))], fmt.Sprintf("s%d", i+2)
			command := viewCommands[r.IntN(len(viewCommands))]
			v.both(strings.NewReplacer("X", x, "Y", y).Replace(command))
			switch {
			case i%7 == 3:
				m.EvictAll()
			case i%20 == 19:
				m.Kill()
				m.Must(m.Start())
			}
			if steps = m.Names("runs"); len(steps) > 6 { // a command may have taken one away
				v.both("rm -r " + steps[r.IntN(len(steps))])
			}
		}
		m.EvictAll()
		v.both("true")
		m.Remount()
		v.both("true")
		v.both("rm -r *")
		m.Sh("rmdir runs")
	})
}

// TestViewInTheWay: who makes something new by the name of a view, and says that it must be new, makes it.
func TestViewInTheWay(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		m.Must(os.MkdirAll(m.Path("runs/a"), 0o755))
		mounttest.RunPython(t, "save.py", "nested", "1", m.Path("runs/a/model.pt"))
		out := t.TempDir()
		m.Sh("cp -r runs/a " + out + "/copy")
		for i, command := range []string{
			`cp -r runs/a runs/D`,
			`cp -r ` + out + `/copy runs/D`,
			`mkdir runs/D; for f in model.pt model.safetensors; do dd if=runs/a/$f of=runs/D/$f conv=excl bs=1M status=none; done`,
			`cp -r ` + out + `/copy ` + out + `/D && mv ` + out + `/D runs/D`,
			`mkdir runs/D; cp runs/a/model.pt runs/D/; ls runs/D | grep -q safetensors; cat runs/D/model.safetensors | sha256sum >/dev/null
			 dd if=runs/a/model.safetensors of=runs/D/model.safetensors conv=excl bs=1M status=none`,
		} {
			dir := fmt.Sprintf("d%d", i)
			m.Sh(strings.ReplaceAll(command, "D", dir))
			m.Sh("diff -r runs/a runs/" + dir)
			if f := m.Show("runs/" + dir + "/model.safetensors"); f.View {
				t.Errorf("%s: what was written is a view yet", command)
			}
		}
		m.Sh(`mkdir runs/e runs/f; cp runs/a/model.pt runs/e; cp runs/a/model.pt runs/f; cat runs/e/*.safetensors runs/f/*.safetensors >/dev/null
			mkdir runs/e/model.safetensors; ln -s model.pt runs/f/model.safetensors; cmp runs/f/model.safetensors runs/a/model.pt`)
		if said := m.Sh(`set -C; (echo x >runs/d0/model.safetensors) 2>/dev/null || echo refused`); said != "refused" {
			t.Errorf("a real file was written over by who wanted a new one: %s", said)
		}
	})
}
