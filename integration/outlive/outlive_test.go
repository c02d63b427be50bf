package outlive

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// kills is how often the daemon of each of the mounts is killed. CKPTFS_KILLS is another number.
func kills(t *testing.T) int {
	n := 25
	if s := os.Getenv("CKPTFS_KILLS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// allUses are what is done at the same time. CKPTFS_USES names some of them.
func allUses() []string {
	if s := os.Getenv("CKPTFS_USES"); s != "" {
		return strings.Split(s, ",")
	}
	return []string{"write", "save", "packed", "held", "removed", "locks", "views", "remade", "names", "list",
		"cwd"}
}

// TestKilledUnderLoad kills the daemon at random moments while programs use the mount in every way.
func TestKilledUnderLoad(t *testing.T) {
	mounttest.NeedFUSE(t)
	n := kills(t)
	for _, c := range []struct {
		what  string
		flags []string
		user  bool
	}{
		{"passthrough", nil, false},
		{"served", []string{"--no-passthrough"}, false},
		{"user", nil, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			var m *mounttest.Mount
			if c.user {
				m = mounttest.NewFor(t, mounttest.Nobody)
			} else {
				limit := time.Duration(n)*2*time.Second + 5*time.Minute
				m = mounttest.PrepareFor(t, t.TempDir(), limit, c.flags...)
				m.Must(m.Start())
			}
			underLoad(t, m, n)
		})
	}
}

func underLoad(t *testing.T, m *mounttest.Mount, n int) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CKPTFS_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	var all []*program
	for i, use := range allUses() {
		all = append(all, begin(m, use, seed+uint64(i)))
	}
	for _, p := range all {
		<-p.ready
	}
	stop := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() { commands(m, stop) })
	done := 0
	for ; done < n && !t.Failed(); done++ {
		time.Sleep(time.Duration(rng.IntN(250)) * time.Millisecond)
		var err error
		if rng.IntN(6) == 0 { // the next one may not be ready yet
			_, err = m.StrikeDaemon(syscall.SIGKILL)
		} else {
			err = m.KillDaemon()
		}
		if err != nil {
			t.Error(err)
			m.Dump()
			break
		}
	}
	close(stop)
	var calls int64
	for _, p := range all {
		c := p.end(t)
		calls += c
		t.Logf("%s: %d calls", p.use, c)
	}
	beside.Wait()
	if t.Failed() {
		m.Dump()
	}
	took := takeovers(m.LogText())
	slices.Sort(took)
	if len(took) > 0 {
		t.Logf("%d kills, %d times taken over, %d calls and checks; "+
			"kill to serving: median %v, 90 %%: %v, most %v", done, len(took), calls,
			took[len(took)/2], took[len(took)*9/10], took[len(took)-1])
	}
	for _, line := range strings.Split(m.LogText(), "\n") {
		if strings.Contains(line, "level=ERROR") {
			t.Errorf("the log says: %s", line)
		}
	}
}

var takenOver = regexp.MustCompile(`the mount was taken over" after=(\S+)`)

// takeovers are how long the mount was not served each time, as a daemon's log says.
func takeovers(log string) []time.Duration {
	var all []time.Duration
	for _, found := range takenOver.FindAllStringSubmatch(log, -1) {
		if d, err := time.ParseDuration(found[1]); err == nil {
			all = append(all, d)
		}
	}
	return all
}

// commands runs commands of ckptfs, which must not fail since the daemon was killed.
func commands(m *mounttest.Mount, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
		args := [][]string{{"status"}, {"sync"}, {"evict"}, {"stats"}}[i%4]
		out, err := m.CLI(append(args, m.Dir)...)
		if err == nil {
			continue
		}
		said := out + err.Error()
		switch {
		case strings.Contains(said, "died"), strings.Contains(said, "not mounted"):
			m.T.Errorf("%v: %s", args, said)
		case strings.Contains(said, "exit status 7"): // some files stay
		default:
			m.T.Logf("%v: %s", args, said)
		}
	}
}

// TestUmountAfterKill unmounts right after a kill: the next daemon does it.
func TestUmountAfterKill(t *testing.T) {
	m := mounttest.New(t)
	for _, args := range [][]string{
		{"umount"}, {"umount", "--no-wait"}, {"umount", "--lazy"}, {"umount", "--force"},
	} {
		data := mounttest.Noise(1, 200_000)
		m.Write("x", data)
		// --force takes the mount away: nobody hears any more that a file is released.
		m.Must(daemon.Until("no file to be open", func() bool { return m.Status().OpenFiles == 0 }))
		_, err := m.StrikeDaemon(syscall.SIGKILL)
		m.Must(err)
		m.Run(append(args, m.Dir)...)
		nothingLeft(m)
		m.Must(m.Start())
		m.Want("x", data)
	}
}

// nothingLeft waits until no process, mount or socket is left of a mount.
func nothingLeft(m *mounttest.Mount) {
	m.T.Helper()
	m.Must(daemon.Until("everything to be gone", func() bool { return len(m.PIDs()) == 0 && !m.Mounted() }))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	m.Must(err)
	if strings.Contains(string(mounts), m.Dir) {
		m.T.Errorf("%s is still a mount", m.Dir)
	}
}

// TestBothDead: with holder and daemon dead, commands say so at once.
func TestBothDead(t *testing.T) {
	m := mounttest.New(t)
	m.Kill()
	began := time.Now()
	said, _ := m.RunFails("status", m.Dir)
	mounttest.WantSaid(t, said, "died")
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	m.Run("umount", m.Dir)
	nothingLeft(m)
}

// TestStoreGone: when no next daemon can serve, the holder gives up, and nothing is left.
func TestStoreGone(t *testing.T) {
	t.Setenv("CKPTFS_HOLDER_PATIENCE", "1s") // and ten tries
	m := mounttest.New(t)
	m.Write("x", mounttest.Noise(1, 200_000))
	m.Must(os.Rename(m.Store, m.Store+".away"))
	reader := exec.Command("cat", m.Path("x"))
	_, err := m.StrikeDaemon(syscall.SIGKILL)
	m.Must(err)
	m.Must(reader.Start())
	done := make(chan error, 1)
	go func() { done <- reader.Wait() }()
	nothingLeft(m)
	select {
	case err := <-done:
		if err == nil {
			t.Error("a file was read from a store that is gone")
		}
	case <-time.After(10 * time.Second):
		t.Error("a reader still waits")
	}
	m.Must(os.Rename(m.Store+".away", m.Store))
	if _, err := os.Stat(filepath.Join(m.Dir, "x")); !os.IsNotExist(err) {
		t.Errorf("stat: %v", err)
	}
	m.Must(m.Start())
	m.Want("x", mounttest.Noise(1, 200_000))
}

// TestSignals: the holder passes signals on, also to the daemon that comes next.
func TestSignals(t *testing.T) {
	m := mounttest.New(t)
	m.Write("x", mounttest.Noise(1, 200_000))
	holder := m.PIDs()[0]
	if holder == m.DaemonPID() {
		t.Fatal("the holder is not the first")
	}
	f, err := os.Open(m.Path("x"))
	m.Must(err)
	m.Must(syscall.Kill(holder, syscall.SIGTERM)) // and it waits for the open file
	m.Must(daemon.Until("the signal to be told of", func() bool {
		return strings.Contains(m.LogText(), "cannot unmount yet")
	}))
	m.Must(m.KillDaemon())
	m.Must(f.Close())
	nothingLeft(m)
	m.Must(m.Start())
	m.Want("x", mounttest.Noise(1, 200_000))
}
