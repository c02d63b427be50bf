package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

type serverReply struct {
	Sum      int64
	Pss, Rss int64 // bytes
}

// TestServers: several processes that map one packed file share one copy of it in memory, and ask the daemon
// for nothing once it is there.
func TestServers(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		const name = "model.safetensors"
		mounttest.RunPython(t, "payload.py", fmt.Sprint(48*mib), m.Path("model.pt"), m.Path(name))
		m.EvictAll()
		m.WantState(name, mounttest.Packed)
		st, err := os.Stat(m.Path(name))
		m.Must(err)
		size := st.Size()

		servers := make([]*mounttest.Session, 3)
		for i := range servers {
			servers[i] = mounttest.StartSession(t, "clients/server.py", m.Path(name))
			if said := servers[i].Answer(); said != "ready" {
				mounttest.Missing(t, "%s", said)
			}
		}
		ask := func(command string) (all []serverReply) {
			t.Helper()
			for _, s := range servers {
				var r serverReply
				said := s.Tell(command)
				if err := json.Unmarshal([]byte(said), &r); err != nil {
					t.Fatalf("%s: %s", command, said)
				}
				all = append(all, r)
			}
			return all
		}
		sums := ask("load")
		for _, s := range sums {
			if s.Sum != sums[0].Sum || s.Sum == 0 {
				t.Errorf("the servers read different numbers: %v", sums)
			}
		}
		var pss, rss int64
		for _, r := range ask("pss") {
			pss += r.Pss
			rss += r.Rss
		}
		t.Logf("%d servers: %d bytes of the file mapped, %d taken", len(servers), rss, pss)
		if rss < int64(len(servers))*size*9/10 {
			t.Errorf("%d of %d bytes are mapped: this is no mapping", rss, int64(len(servers))*size)
		}
		if pss > size*11/10 {
			t.Errorf("%d processes that map %d bytes take %d: they do not share them", len(servers), size, pss)
		}

		// What the reads set going, hydration above all, which begins half a second later, has to be over
		// before the daemon's time is looked at.
		quiet, at := cpuOf(m), time.Now()
		m.Must(daemon.Until("the daemon to be idle", func() bool {
			if now := cpuOf(m); now != quiet {
				quiet, at = now, time.Now()
			}
			return time.Since(at) > 1500*time.Millisecond
		}))
		for range 10 {
			ask("again")
		}
		// 30 times the file through the daemon would be seconds.
		if used := cpuOf(m) - quiet; used > 200*time.Millisecond {
			t.Errorf("reading what is mapped and warm took %v of the daemon's time", used)
		}
		for _, s := range ask("again") {
			if s.Sum != sums[0].Sum {
				t.Errorf("read again it is %v, was %v", s.Sum, sums[0].Sum)
			}
		}
	})
}

// cpu is the processor time that the daemon has used, of its own and of the kernel for it.
func cpuOf(m *mounttest.Mount) time.Duration {
	m.T.Helper()
	var ticks int64
	for _, pid := range m.PIDs() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		m.Must(err)
		_, rest, _ := strings.Cut(string(stat), ") ")
		f := strings.Fields(rest)
		for _, v := range f[11:13] { // utime, stime, in hundredths of a second
			n, err := strconv.ParseInt(v, 10, 64)
			m.Must(err)
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
