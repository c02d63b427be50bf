package commands

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

type pruned struct {
	DeadRecords int64 `json:"dead_records"`
	Young       int   `json:"young_segments"`
	Freed       int64 `json:"freed_bytes"`
}

// TestPrune: what was removed goes back to the disk, mounted and unmounted, and everything else stays.
func TestPrune(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	shared := mounttest.Noise(1, 4*mib)
	file := func(i int) []byte {
		b, _ := mounttest.SafetensorsOf([]string{"a", "b"},
			[][]byte{shared, mounttest.Noise(uint64(100+i), 4*mib)})
		return b
	}
	m.Must(os.MkdirAll(m.Path("runs/a"), 0o755))
	name := func(i int) string { return fmt.Sprintf("runs/a/%d.safetensors", i) }
	for i := range 8 {
		m.Write(name(i), file(i))
	}
	m.Sync()
	m.Run("evict", m.Dir)
	full := m.Taken()
	for i := range 4 {
		m.Must(os.Remove(m.Path(name(i))))
	}
	var p pruned
	m.JSON(&p, "prune", "--json", m.Dir)
	if p.DeadRecords != 0 {
		t.Errorf("within the grace period: %+v", p)
	}
	// The kernel lets go of what it knew by name in its own time.
	m.Must(daemon.Until("what is dead to be seen", func() bool {
		m.JSON(&p, "gc", "--json", "--dry-run", "--grace", "0", m.Dir)
		return p.DeadRecords >= 4*16
	}))
	if m.Taken() < full {
		t.Error("a dry run removed something")
	}
	said := m.Run("prune", "--grace", "0", m.Dir)
	if !strings.Contains(said, "freed") {
		t.Errorf("it said: %s", said)
	}
	half := m.Taken()
	if full-half < 15*mib {
		t.Errorf("%d bytes before, %d after 16 MiB were removed", full, half)
	}
	for i := 4; i < 8; i++ {
		m.Want(name(i), file(i))
	}
	for i := 4; i < 7; i++ {
		m.Must(os.Remove(m.Path(name(i))))
	}
	m.Must(m.Stop())
	m.JSON(&p, "prune", "--json", "--grace", "0", "--max-unused", "100%", m.Store)
	if p.DeadRecords < 3*16 || half-m.Taken() < 10*mib {
		t.Errorf("%+v; %d bytes before, %d after", p, half, m.Taken())
	}
	m.Run("check", "--read-data", m.Store)
	m.Must(m.Start())
	m.Want(name(7), file(7))
	m.Write(name(0), file(0))
	m.Sync()
	m.Run("evict", m.Dir)
	m.Want(name(0), file(0))
	for _, args := range [][]string{{"prune", "--grace", "-1h", m.Dir}, {"prune", "--max-unused", "200%",
		m.Dir}, {"prune"}} {
		if said, code := m.RunFails(args...); code != exitUsage {
			t.Errorf("%v: exit status %d: %s", args, code, said)
		}
	}
}

// TestPruneWhileInUse: files are saved, copied, renamed, removed and evicted while prunes run, some of them
// killed. Then all is evicted and compared.
func TestPruneWhileInUse(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t, "--hot-size", "64MiB")
	for i := range 4 {
		m.Must(os.MkdirAll(m.Path(fmt.Sprintf("d%d", i)), 0o755))
	}
	pool := make([][]byte, 8)
	for i := range pool {
		pool[i] = mounttest.Noise(uint64(i), mib)
	}
	stop := make(chan struct{})
	var writers, others sync.WaitGroup
	var mu sync.Mutex
	want := map[string][]byte{}
	for g := range 2 {
		writers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 6))
			mine := map[string][]byte{}
			fail := func(err error) bool {
				if err != nil {
					t.Error(err)
				}
				return err != nil
			}
			for i := range 40 {
				name := fmt.Sprintf("d%d/%d-%d", r.IntN(4), g, i)
				data, _ := mounttest.SafetensorsOf([]string{"x", "y"}, [][]byte{pool[r.IntN(len(pool))],
					pool[r.IntN(len(pool))]})
				if fail(os.WriteFile(m.Path(name), data, 0o644)) {
					return
				}
				mine[name] = data
				for old, data := range mine {
					to := fmt.Sprintf("d%d/c%s-%d", r.IntN(4), path.Base(old), i)
					switch r.IntN(5) {
					case 0:
						if fail(os.Remove(m.Path(old))) {
							return
						}
						delete(mine, old)
					case 1:
						if fail(os.Rename(m.Path(old), m.Path(to))) {
							return
						}
						delete(mine, old)
						mine[to] = data
					case 2:
						if out, err := exec.Command("cp", m.Path(old),
							m.Path(to)).CombinedOutput(); err != nil {
							t.Errorf("cp: %v: %s", err, out)
							return
						}
						mine[to] = data
					case 3:
						got, err := os.ReadFile(m.Path(old))
						if fail(err) {
							return
						}
						if !bytes.Equal(got, data) {
							t.Errorf("%s: %s", old, mounttest.Difference(data, got))
						}
					}
					break
				}
				if i%8 == 7 {
					if _, err := m.CLI("sync", m.Dir); fail(err) {
						return
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for name, data := range mine {
				want[name] = data
			}
		})
	}
	loop := func(f func(i int)) {
		others.Go(func() {
			for i := 0; ; i++ {
				f(i)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	prunes := 0
	loop(func(i int) {
		if i%3 == 2 { // one that is killed
			cmd := exec.Command(m.Bin, "prune", "--grace", "0", m.Dir)
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Duration(i%7) * time.Millisecond)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return
		}
		said, err := m.CLI("prune", "--grace", "0", "--max-unused", []string{"0%", "50%"}[i%2], m.Dir)
		if err != nil && !strings.Contains(err.Error(), "another") {
			t.Errorf("%v\n%s", err, said)
		}
		prunes++
	})
	loop(func(int) {
		_, _ = m.CLI("evict", m.Dir)
		time.Sleep(20 * time.Millisecond)
	})
	writers.Wait()
	close(stop)
	others.Wait()
	t.Logf("%d prunes, %d files left", prunes, len(want))
	m.Sync()
	m.Run("prune", "--grace", "0", m.Dir)
	m.Remount()
	_, _ = m.CLI("evict", m.Dir)
	for name, data := range want {
		m.Want(name, data)
	}
	m.Run("check", "--read-data", m.Dir)
	m.Must(m.Stop())
	m.Must(os.Remove(filepath.Join(m.Store, "index.db")))
	m.Must(m.Start())
	for name, data := range want {
		m.Want(name, data)
	}
}

// TestCheckAndRepair: damage is found and named, the commands that check prints contain it, and what is whole
// stays.
func TestCheckAndRepair(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	bad := mounttest.Noise(2, 2*mib)
	hurt, _ := mounttest.SafetensorsOf([]string{"layer.0.weight", "layer.1.weight"},
		[][]byte{mounttest.Noise(1, mib), bad})
	fine, _ := mounttest.SafetensorsOf([]string{"layer.0.weight", "layer.2.weight"},
		[][]byte{mounttest.Noise(1, mib), mounttest.Noise(3, mib)})
	m.Must(os.MkdirAll(m.Path("runs/a"), 0o755))
	m.Write("runs/a/hurt.safetensors", hurt)
	m.Write("runs/a/fine.safetensors", fine)
	m.Evict("runs/a/hurt.safetensors", "runs/a/fine.safetensors")
	if said := m.Run("check", "--read-data", m.Dir); !strings.Contains(said, "no damage") {
		t.Errorf("it said: %s", said)
	}
	m.Run("fsck", "--read-data-subset", "30%", m.Dir)
	said, code := m.RunFails("repair", "index", m.Store)
	if code != exitBusy {
		t.Errorf("repairing a mounted store: exit status %d", code)
	}
	mounttest.WantSaid(t, said, "in use", "ckptfs umount "+m.Dir)

	m.Damage(bad[mib+1000 : mib+1064])
	out, err := m.CLI("check", "--read-data", m.Dir)
	if exit, ok := err.(*daemon.ExitError); !ok || exit.Code != exitDamaged {
		t.Fatalf("%v: %s", err, out)
	}
	mounttest.WantSaid(t, out, "runs/a/hurt.safetensors", "layer.1.weight", "ckptfs repair segments "+m.Store)
	if strings.Contains(out, "fine.safetensors") || strings.Contains(out, "layer.0.weight") {
		t.Errorf("it said: %s", out)
	}
	// The commands, as they are printed; the last one is another check.
	bin := t.TempDir()
	m.Must(os.Symlink(m.Bin, filepath.Join(bin, "ckptfs")))
	for round := 0; ; round++ {
		_, todo, found := strings.Cut(out, "to repair:\n")
		if !found {
			break
		}
		if round == 4 {
			t.Fatalf("still to be repaired: %s", out)
		}
		for line := range strings.Lines(todo) {
			cmd := exec.Command("sh", "-c", line)
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			b, _ := cmd.Output()
			t.Logf("$ %s\n%s", strings.TrimSpace(line), b)
			out = string(b)
		}
	}
	mounttest.WantSaid(t, out, "no damage", "lost+found")
	m.Must(m.Start())
	m.Want("runs/a/fine.safetensors", fine)
	if _, err := os.Stat(m.Path("runs/a/hurt.safetensors")); !os.IsNotExist(err) {
		t.Errorf("what cannot be read is there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(m.Store, "lost+found/tree/runs/a/hurt.safetensors")); err != nil {
		t.Error(err)
	}
	m.Write("runs/a/hurt.safetensors", hurt)
	m.Evict("runs/a/hurt.safetensors")
	m.Want("runs/a/hurt.safetensors", hurt)
	m.Run("check", "--read-data", m.Dir)
}
