package clients

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// TestCutOff kills Orbax, PyTorch DCP and Lightning while they save, now the program and now the daemon under
// it. What the library then takes for saved loads, with the bytes of its step, and the last step that was
// acknowledged is among it: what a plain ext4 gives. CKPTFS_ROUNDS sets how often.
func TestCutOff(t *testing.T) {
	t.Parallel()
	rounds := 2
	if n, err := strconv.Atoi(os.Getenv("CKPTFS_ROUNDS")); err == nil {
		rounds = n
	}
	for _, library := range []string{"orbax", "dcp", "lightning"} {
		t.Run(library, func(t *testing.T) {
			t.Parallel()
			mounttest.NeedFUSE(t)
			dir := t.TempDir()
			s := mounttest.StartSession(t, "clients/cutoff.py", library, dir+"/mnt/run", "3000000")
			if said := s.Answer(); said != "ready" {
				mounttest.Missing(t, "%s", said)
			}
			m := mounttest.Prepare(t, dir)
			m.Must(m.Start())
			m.Must(os.Mkdir(m.Path("run"), 0o755))
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			// The list of what was acknowledged lies beside the folder, on the mount: it is no better than
			// the disk it is on.
			acknowledged := func() []string {
				text, _ := os.ReadFile(m.Path("run.acknowledged"))
				return strings.Fields(string(text))
			}
			verify := func(when string) {
				t.Helper()
				if said := s.Tell("verify"); !strings.HasPrefix(said, "ok") {
					t.Fatalf("%s: %s", when, said)
				}
			}
			next := 1
			for i := range 2 * rounds {
				had := len(acknowledged())
				var pid int
				if _, err := fmt.Sscanf(s.Tell(fmt.Sprintf("go %d", next)), "pid %d", &pid); err != nil {
					t.Fatal(err)
				}
				saved := func() bool { return len(acknowledged()) >= had+1+i%3 || gone(pid) }
				m.Must(daemon.Within(3*daemon.Patience, "a step to be saved", saved))
				time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond) // anywhere in the next save
				if i%2 == 0 {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				} else {
					m.Kill()
					_ = syscall.Kill(pid, syscall.SIGKILL) // it may go on trying
					m.Must(m.Start())
				}
				m.Must(daemon.Until("the killed program to end", func() bool { return gone(pid) }))
				if len(acknowledged()) <= had {
					t.Fatal("nothing was saved at all")
				}
				verify([]string{"the program was killed", "the daemon was killed"}[i%2])
				last, err := strconv.Atoi(acknowledged()[len(acknowledged())-1])
				m.Must(err)
				next = last + 10 // never a step that was begun before
				if i%2 == 1 {
					m.EvictAll()
					verify("evicted")
				}
			}
			m.Remount()
			verify("mounted again")
		})
	}
}

// gone reports whether a process has ended, reaped or not.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
