package outlive

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// TestCauseEnds: a cause that lasts longer than ten tries costs nobody the mount.
func TestCauseEnds(t *testing.T) {
	t.Setenv("CKPTFS_HOLDER_PATIENCE", "40s") // and ten tries, which are over in ten seconds
	m := mounttest.New(t)
	data := mounttest.Noise(1, 200_000)
	m.Write("x", data)
	back := late(m)
	m.Must(daemon.Until("eleven tries", func() bool { return strings.Contains(m.LogText(), "tries=10") }))
	if len(m.PIDs()) == 0 {
		t.Fatal("the holder gave up")
	}
	back()
	m.Want("x", data)
	m.Run("umount", m.Dir)
	nothingLeft(m)
}

// TestForcedMeanwhile: while no daemon can serve, the mount is taken away at once.
func TestForcedMeanwhile(t *testing.T) {
	for _, args := range [][]string{{"umount", "--force"}, {"umount", "--lazy"}} {
		m := mounttest.New(t)
		m.Write("x", mounttest.Noise(1, 200_000))
		back := late(m)
		m.Must(daemon.Until("some tries", func() bool { return strings.Contains(m.LogText(), "tries=3") }))
		began := time.Now()
		m.Run(append(args, m.Dir)...)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("%v took %v", args, took)
		}
		nothingLeft(m)
		back()
	}
}

// TestCannotStart: when the program cannot be run any more the log says so, and that the holder gave up.
func TestCannotStart(t *testing.T) {
	t.Setenv("CKPTFS_HOLDER_PATIENCE", "2s")
	m := mounttest.Prepare(t, t.TempDir())
	program, err := os.ReadFile(m.Bin)
	m.Must(err)
	m.Bin = filepath.Join(t.TempDir(), "ckptfs")
	m.Must(os.WriteFile(m.Bin, program, 0o755))
	m.Must(m.Start())
	data := mounttest.Noise(1, 200_000)
	m.Write("x", data)
	m.Must(os.Chmod(m.Bin, 0))
	_, err = m.StrikeDaemon(syscall.SIGKILL)
	m.Must(err)
	wantLogged(m, "the next one cannot be started", "signal: killed", "permission denied")
	nothingLeft(m)
	wantLogged(m, "no daemon could serve the mount, and it is detached", "permission denied", "mount it again")
	m.Must(os.Chmod(m.Bin, 0o755))
	m.Must(m.Start())
	m.Want("x", data)
	m.Must(m.Stop())
	m.Must(os.WriteFile(m.Log, nil, 0o644)) // in which there are errors
}

// wantLogged waits until one line of the log says all that.
func wantLogged(m *mounttest.Mount, all ...string) {
	m.T.Helper()
	err := daemon.Until("the log to say so", func() bool {
	lines:
		for _, line := range strings.Split(m.LogText(), "\n") {
			for _, what := range all {
				if !strings.Contains(line, what) {
					continue lines
				}
			}
			return true
		}
		return false
	})
	if err != nil {
		m.T.Errorf("%v: %q; the log: %s", err, all, m.LogText())
	}
}

// asking starts a command, and returns when it waits for the answer of a daemon, which is stopped.
func asking(m *mounttest.Mount, args ...string) *mounttest.Process {
	m.T.Helper()
	m.Must(daemon.Until("the command socket", func() bool {
		_, err := m.CLI("status", m.Dir)
		return err == nil
	}))
	pid := m.DaemonPID()
	m.Must(syscall.Kill(pid, syscall.SIGSTOP))
	m.Must(daemon.Until("all threads to be stopped", func() bool {
		threads, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/*/stat"))
		for _, thread := range threads {
			if stat, err := os.ReadFile(thread); err == nil && !strings.Contains(string(stat), ") T ") {
				return false
			}
		}
		return true
	}))
	p := mounttest.Begin(m.T, filepath.Dir(m.Store), m.Bin, args...)
	m.Must(daemon.Until("a connection", func() bool {
		fds, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(p.Process.Pid), "fd", "*"))
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:") {
				return true
			}
		}
		return false
	}))
	time.Sleep(200 * time.Millisecond) // it sends its question
	return p
}

// TestKilledWhileItAnswersUmount: the next daemon is asked.
func TestKilledWhileItAnswersUmount(t *testing.T) {
	for _, flags := range [][]string{nil, {"--no-wait"}, {"--lazy"}, {"--timeout", "1m"}} {
		m := mounttest.New(t)
		data := mounttest.Noise(1, 200_000)
		m.Write("x", data)
		p := asking(m, append(append([]string{"umount"}, flags...), m.Dir)...)
		_, err := m.StrikeDaemon(syscall.SIGKILL)
		m.Must(err)
		if code := p.Code(); code != 0 {
			t.Errorf("umount %v: %d, %s", flags, code, p.Text())
		}
		nothingLeft(m)
		m.Must(m.Start())
		m.Want("x", data)
	}
}

// TestKilledForGoodWhileItAnswersUmount: no next daemon comes, and the mount stays. With its holder killed it
// ends.
func TestKilledForGoodWhileItAnswersUmount(t *testing.T) {
	m := mounttest.New(t)
	data := mounttest.Noise(1, 200_000)
	m.Write("x", data)
	p := asking(m, "umount", "--timeout", "6s", m.Dir)
	back := late(m)
	if code := p.Code(); code != 4 || !strings.Contains(p.Text(), "the next daemon does not answer yet") ||
		strings.Contains(p.Text(), "/proc/self") || strings.Contains(p.Text(), "packed") {
		t.Errorf("umount: %d, %s", code, p.Text())
	}
	back()
	m.Want("x", data)

	p = asking(m, "umount", m.Dir)
	m.Must(m.Kill9())
	if code := p.Code(); code != 1 || !strings.Contains(p.Text(), "is unmounted; its daemon ended meanwhile") ||
		!strings.Contains(p.Text(), "not closed in order") {
		t.Errorf("umount: %d, %s", code, p.Text())
	}
	nothingLeft(m)
	m.Must(m.Start())
	m.Want("x", data)
}
