package throttle

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/sys/mountinfo"
)

// Of all that /proc says of groups and mounts those are found that can limit processors, from the process'
// own up.
func TestFindGroups(t *testing.T) {
	v1 := func(controllers, root string) *mountinfo.Info {
		return &mountinfo.Info{FSType: "cgroup", VFSOptions: "rw," + controllers, Root: root,
			Mountpoint: "/cg/" + controllers}
	}
	v2 := func(root string) *mountinfo.Info {
		return &mountinfo.Info{FSType: "cgroup2", VFSOptions: "rw", Root: root, Mountpoint: "/cg"}
	}
	for name, c := range map[string]struct {
		own    string
		mounts []*mountinfo.Info
		want   quotas
	}{
		"a container":                 {"0::/\n", []*mountinfo.Info{v2("/")}, quotas{{cpu: "/cg"}}},
		"a service":                   {"0::/system.slice/x.service\n", []*mountinfo.Info{v2("/")}, quotas{{cpu: "/cg/system.slice/x.service"}, {cpu: "/cg/system.slice"}, {cpu: "/cg"}}},
		"part of the groups":          {"0::/a/b/c\n", []*mountinfo.Info{v2("/a")}, quotas{{cpu: "/cg/b/c"}, {cpu: "/cg/b"}, {cpu: "/cg"}}},
		"a group outside":             {"0::/../other\n", []*mountinfo.Info{v2("/")}, nil},
		"version 1":                   {"4:cpuset:/\n3:cpu,cpuacct:/docker/a\n", []*mountinfo.Info{v1("cpuset", "/"), v1("cpu,cpuacct", "/docker/a")}, quotas{{"/cg/cpu,cpuacct", "/cg/cpu,cpuacct"}}},
		"version 1, mounted apart":    {"3:cpu:/a\n2:cpuacct:/a\n", []*mountinfo.Info{v1("cpu", "/"), v1("cpuacct", "/")}, quotas{{"/cg/cpu/a", "/cg/cpuacct/a"}, {"/cg/cpu", "/cg/cpuacct"}}},
		"accounts of another group":   {"3:cpu:/a\n2:cpuacct:/b\n", []*mountinfo.Info{v1("cpu", "/"), v1("cpuacct", "/")}, nil},
		"both versions, one with cpu": {"1:cpu,cpuacct:/\n0::/\n", []*mountinfo.Info{v1("cpu,cpuacct", "/"), v2("/")}, quotas{{"/cg/cpu,cpuacct", "/cg/cpu,cpuacct"}, {cpu: "/cg"}}},
		"none is mounted":             {"0::/\n", nil, nil},
		"nonsense":                    {"\n:\n0:\nx\x00\n0::", []*mountinfo.Info{v2("/")}, nil},
	} {
		if got := findGroups([]byte(c.own), c.mounts); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What the kernel's files say is read in both versions; what they do not say limits nothing.
func TestReadGroups(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		old   bool
		want  groupTime
	}{
		"limited": {map[string]string{
			"cpu.max":  "250000 100000\n",
			"cpu.stat": "usage_usec 7\nuser_usec 5\nthrottled_usec 3\n",
		}, false, groupTime{2.5, 7 * time.Microsecond, 3 * time.Microsecond}},
		"not limited": {map[string]string{
			"cpu.max":  "max 100000\n",
			"cpu.stat": "usage_usec 7\n",
		}, false, groupTime{}},
		"the highest": {map[string]string{"cpu.stat": "usage_usec 7\n"}, false, groupTime{}},
		"no period": {map[string]string{"cpu.max": "5 0", "cpu.stat": "usage_usec 7\n"}, false,
			groupTime{}},
		"no accounts":              {map[string]string{"cpu.max": "5 5"}, false, groupTime{}},
		"nothing":                  {nil, false, groupTime{}},
		"version 1, limited":       {map[string]string{"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n", "cpuacct.usage": "7\n", "cpu.stat": "nr_throttled 9\nthrottled_time 3\n"}, true, groupTime{0.5, 7, 3}},
		"version 1, not limited":   {map[string]string{"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n", "cpuacct.usage": "7\n"}, true, groupTime{}},
		"version 1, no accounts":   {map[string]string{"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n"}, true, groupTime{}},
		"version 1, empty folders": {nil, true, groupTime{}},
	} {
		g := group{cpu: t.TempDir()}
		for file, text := range c.files {
			if err := os.WriteFile(filepath.Join(g.cpu, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if c.old {
			g.acct = g.cpu
		}
		if got := (quotas{g}).read(); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// What a container's limit leaves follows from what others in it use.
func TestShareWithin(t *testing.T) {
	idle := load{16, 2, 1, 0}
	for name, c := range map[string]struct {
		workers int
		limit   load
		want    int
	}{
		"nobody else in it":                  {2, load{4, 2, 2, 0}, 4},
		"another uses half of it":            {2, load{4, 4, 2, 0}, 2},
		"another uses most of it":            {0, load{4, 3.4, 0, 0}, 0},
		"another uses it":                    {0, load{4, 4, 0, 0.5}, 0},
		"another wants it beside packing":    {2, load{4, 4, 2, 1}, 0},
		"a quarter of a processor, unused":   {0, load{0.6, 0, 0, 0}, 1},
		"more was used than it may, by both": {4, load{4, 6, 3, 0}, 1},
	} {
		a := share{most: 8, siblings: 2, workers: c.workers}
		if a.judge(time.Now(), idle, []load{{32, 2, 1, 0}, c.limit}); a.workers != c.want {
			t.Errorf("%s: %d workers, want %d", name, a.workers, c.want)
		}
	}
}

// A training within a container's limit has its pace on a machine of which most is idle, and packing has the
// gaps.
func TestThrottleWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 4
		m := &container{quota: 2, per: 100 * time.Millisecond, start: time.Now(), at: time.Now()}
		c := New(most, func() bool { return false })
		c.read, c.share.siblings = m.read, 1
		ctx, cancel := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		for range most {
			workers.Go(func() {
				for m.work(ctx, c) == nil {
				}
			})
		}
		for _, step := range []struct{ others, min, max float64 }{
			{0, 1.9, 2}, {2, 0, 0.01}, {1, 0.9, 1}, {3, 0, 0.01}, {0, 1.9, 2},
		} {
			m.want(step.others)
			time.Sleep(2 * maxPause)
			before := m.used()
			time.Sleep(20 * time.Second)
			if own := (m.used() - before).Seconds() / 20; own < step.min || own > step.max {
				t.Errorf("beside %v of %v processors packing has %.2f", step.others, m.quota, own)
			}
		}
		cancel()
		workers.Wait()
	})
}

// container has a quota of a machine of 16 processors for each period; what wants more stands still until the
// next.
type container struct {
	mu                   sync.Mutex
	quota                float64
	per                  time.Duration
	others               float64
	working              int
	start, at            time.Time
	busy, own, throttled time.Duration
	period               int64
	left                 time.Duration
}

// passLocked brings the counters up to date.
func (m *container) passLocked() {
	for now := time.Now(); m.at.Before(now); {
		if n := int64(m.at.Sub(m.start) / m.per); n != m.period || m.at.Equal(m.start) {
			m.period, m.left = n, time.Duration(m.quota*float64(m.per))
		}
		end := m.start.Add(time.Duration(m.period+1) * m.per)
		step := min(now.Sub(m.at), end.Sub(m.at))
		want := m.others + float64(m.working)
		if want > 0 && m.left > 0 {
			step = min(step, max(time.Duration(float64(m.left)/want), 1))
			used := time.Duration(want * float64(step))
			m.left -= used
			m.busy += used
			m.own += time.Duration(float64(m.working) * float64(step))
		} else if want > 0 {
			m.throttled += step
		}
		m.at = m.at.Add(step)
	}
}

func (m *container) read() (cpuTime, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passLocked()
	return cpuTime{
		at: time.Now(), cpus: 16, all: 16 * time.Since(m.start), busy: m.busy, own: m.own,
		groups: []groupTime{{m.quota, m.busy, m.throttled}},
	}, nil
}

func (m *container) used() time.Duration { u, _ := m.read(); return u.own }

func (m *container) want(others float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passLocked()
	m.others = others
}

func (m *container) add(workers int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passLocked()
	m.working += workers
}

func (m *container) work(ctx context.Context, c *Throttle) error {
	over, err := c.Turn(ctx)
	if err != nil {
		return err
	}
	defer over()
	m.add(1)
	defer m.add(-1)
	time.Sleep(2 * time.Millisecond)
	return nil
}

// The kernel's own groups say what a process in one of them may use, and that it used that up.
func TestReadQuota(t *testing.T) {
	if os.Getenv("CKPTFS_TEST_QUOTA") != "" {
		burn()
		return
	}
	own := newQuotas()
	if len(own) == 0 {
		t.Skip("no control groups are mounted")
	}
	var folders []string
	made := func(parent string) string {
		dir, err := os.MkdirTemp(parent, "ckptfs-test-")
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) }) // once the process in it has ended
		folders = append(folders, dir)
		return dir
	}
	set := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Skip(err)
		}
	}
	dir := made(own[0].cpu)
	if acct := own[0].acct; acct == "" {
		set(filepath.Join(dir, "cpu.max"), "5000 100000") // little enough on a loaded machine, too
	} else {
		set(filepath.Join(dir, "cpu.cfs_quota_us"), "5000")
		if acct != own[0].cpu {
			same := filepath.Join(acct, filepath.Base(dir))
			if err := os.Mkdir(same, 0o700); err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { _ = os.Remove(same) })
			folders = append(folders, same)
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestReadQuota$", "-test.v")
	cmd.Env = append(os.Environ(), "CKPTFS_TEST_QUOTA=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := sync.OnceValue(cmd.Wait)
	t.Cleanup(func() { _ = in.Close(); _ = ended() })
	for _, folder := range folders {
		set(filepath.Join(folder, "cgroup.procs"), strconv.Itoa(cmd.Process.Pid))
	}
	_ = in.Close() // it waits for that
	if err := ended(); err != nil || !strings.Contains(out.String(), "quota 0.05: throttled") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// burn computes on two threads until standard input and then the quota is at its end.
func burn() {
	_, _ = os.Stdin.Read(make([]byte, 1))
	p := newProcessors()
	before, err := p.read()
	var stop atomic.Bool
	for range 2 {
		go func() {
			for n := 0; !stop.Load(); n++ {
			}
		}()
	}
	defer stop.Store(true)
	for start := time.Now(); err == nil && time.Since(start) < time.Minute; runtime.Gosched() {
		var u cpuTime
		if u, err = p.read(); err != nil {
			break
		}
		l := u.limits(before)
		if len(l) > 0 && l[0].waiting > muchWaiting && u.at.Sub(before.at) > 3*limitsEvery &&
			l[0].busy-l[0].own < countsAsUse {
			fmt.Printf("quota %v: throttled, %.2f used\n", l[0].all, l[0].busy)
			return
		}
	}
	fmt.Println("not throttled", err)
}
