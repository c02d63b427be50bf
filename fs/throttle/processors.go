package throttle

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is time since some moment.
type cpuTime struct {
	at      time.Time
	cpus    int           // processors
	all     time.Duration // passed, of all processors together
	busy    time.Duration // used, by whomever
	own     time.Duration // used by this process
	waiting time.Duration // in which something waited for a processor; negative: not known
	groups  []groupTime   // control groups that this process is in
}

// since is what the processors did between b and u.
func (u cpuTime) since(b cpuTime) load {
	passed, all := float64(u.at.Sub(b.at)), float64(u.cpus)
	if passed <= 0 || u.all <= b.all {
		return load{waiting: -1}
	}
	l := load{all: all, busy: float64(u.busy-b.busy) / float64(u.all-b.all) * all,
		own: float64(u.own-b.own) / passed, waiting: -1}
	if u.waiting >= 0 && b.waiting >= 0 {
		l.waiting = float64(u.waiting-b.waiting) / passed
	}
	return l
}

// processors are those that this process may run on.
type processors struct {
	set    unix.CPUSet
	quotas quotas
}

func newProcessors() *processors {
	p := &processors{quotas: newQuotas()}
	if unix.SchedGetaffinity(0, &p.set) != nil {
		p.set.Fill()
	}
	return p
}

// read asks the kernel.
func (p *processors) read() (u cpuTime, err error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, err
	}
	u.at = time.Now()
	if u.cpus, u.all, u.busy = p.used(stat); u.all == 0 {
		return u, fmt.Errorf("/proc/stat tells of no processor")
	}
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return u, err
	}
	u.own = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	u.waiting = -1
	if pressure, err := os.ReadFile("/proc/pressure/cpu"); err == nil {
		u.waiting = waited(pressure)
	}
	u.groups = p.quotas.read()
	return u, nil
}

// used is, by /proc/stat, how many processors of p there are, the time that passed, of all of them together,
// and what of it was used. What runs at a low priority does not count as use.
func (p *processors) used(stat []byte) (cpus int, all, busy time.Duration) {
	const tick = 10 * time.Millisecond // USER_HZ, which is 100 on every architecture that Go runs on
	for line := range bytes.Lines(stat) {
		name, isCPU := bytes.CutPrefix(line, []byte("cpu"))
		if !isCPU {
			break // the processors come first
		}
		// cpuN user nice system idle iowait irq softirq steal guest guest_nice; guests are in user and nice
		// already
		fields := bytes.Fields(name)
		if len(fields) == 0 {
			continue
		}
		n, err := strconv.Atoi(string(fields[0]))
		if err != nil || !p.set.IsSet(n) || name[0] == ' ' {
			continue
		}
		cpus++
		for i, f := range fields[1:min(len(fields), 9)] {
			n, _ := strconv.ParseInt(string(f), 10, 64)
			all += time.Duration(n) * tick
			if i != 1 && i != 3 && i != 4 {
				busy += time.Duration(n) * tick
			}
		}
	}
	return cpus, all, busy
}

// waited is the time in which some process waited for a processor, by the kernel's pressure stall
// information; negative where it does not say.
func waited(pressure []byte) time.Duration {
	some, _, _ := strings.Cut(string(pressure), "\n")
	_, total, _ := strings.Cut(some, "total=")
	n, err := strconv.ParseInt(total, 10, 64)
	if err != nil || !strings.HasPrefix(some, "some ") {
		return -1
	}
	return time.Duration(n) * time.Microsecond
}

// hardwareThreads is how many share a core.
func hardwareThreads() int {
	p, err := os.ReadFile("/sys/devices/system/cpu/smt/active")
	if err == nil && strings.TrimSpace(string(p)) == "1" {
		return 2
	}
	return 1
}
