package throttle

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
)

// quotas are the control groups that this process is in, from its own on upwards, each of which may be given
// no more than a quota of processor time: a container's limit. A process that takes of it takes it from all
// others in the group, however many processors are idle.
type quotas []group

// group is a control group's folder; of version 1 the folder of its accounts besides.
type group struct{ cpu, acct string }

// groupTime is the time of a control group since some moment.
type groupTime struct {
	quota     float64       // processors; 0: there is no limit, or nothing is known
	used      time.Duration // by all in the group
	throttled time.Duration // in which something in the group was kept waiting by its limit
}

// newQuotas finds the groups by what is said in /proc/self of mounts and groups.
func newQuotas() quotas {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(m.FSType, "cgroup"), false
	})
	if err != nil {
		return nil
	}
	return findGroups(own, mounts)
}

// findGroups finds the groups of a process of which /proc/PID/cgroup says own.
func findGroups(own []byte, mounts []*mountinfo.Info) (found quotas) {
	cpu, path := groupFolder(own, mounts, "cpu")
	if acct, same := groupFolder(own, mounts, "cpuacct"); cpu != "" && acct != "" && same == path {
		for i := range depth(path) {
			found = append(found, group{up(cpu, i), up(acct, i)})
		}
	}
	unified, path := groupFolder(own, mounts, "")
	if unified != "" {
		for i := range depth(path) {
			found = append(found, group{cpu: up(unified, i)})
		}
	}
	return found
}

// groupFolder is where the group of a controller lies, and its path below where that is mounted; nothing: it
// is not mounted. The controller of version 2 has no name.
func groupFolder(own []byte, mounts []*mountinfo.Info, controller string) (folder, path string) {
	for line := range bytes.Lines(own) {
		// number:controller,controller:path
		fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		// outside of what is seen here
		if len(fields) != 3 || !has(fields[1], controller) || strings.HasPrefix(fields[2], "/..") {
			continue
		}
		for _, m := range mounts {
			if (m.FSType == "cgroup2") != (controller == "") ||
				controller != "" && !has(m.VFSOptions, controller) {
				continue
			}
			rel, err := filepath.Rel(m.Root, fields[2])
			if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
				continue
			}
			return filepath.Join(m.Mountpoint, rel), rel
		}
	}
	return "", ""
}

func has(list, name string) bool { return slices.Contains(strings.Split(list, ","), name) }

// depth is how many groups there are on the way from path up to where groups are mounted.
func depth(path string) int {
	if path == "." {
		return 1
	}
	return strings.Count(path, "/") + 2
}

func up(folder string, n int) string {
	for range n {
		folder = filepath.Dir(folder)
	}
	return folder
}

// read asks the kernel. What it says of a limit may change at any time, so that it is asked for that, too.
func (q quotas) read() []groupTime {
	if len(q) == 0 {
		return nil
	}
	times := make([]groupTime, len(q))
	for i, g := range q {
		if g.acct == "" {
			times[i] = g.readUnified()
		} else {
			times[i] = g.readOld()
		}
	}
	return times
}

func (g group) readUnified() (t groupTime) {
	// cpu.max: microseconds, or "max", in each period of so many
	limit := strings.Fields(g.text("cpu.max"))
	if len(limit) != 2 {
		return t
	}
	quota, per := number(limit[0]), number(limit[1])
	stat := g.text("cpu.stat")
	used, ok := statLine(stat, "usage_usec")
	if quota <= 0 || per <= 0 || !ok {
		return t
	}
	throttled, _ := statLine(stat, "throttled_usec")
	return groupTime{float64(quota) / float64(per), time.Duration(used) * time.Microsecond,
		time.Duration(throttled) * time.Microsecond}
}

func (g group) readOld() (t groupTime) {
	quota, per := number(g.text("cpu.cfs_quota_us")), number(g.text("cpu.cfs_period_us"))
	if quota <= 0 || per <= 0 {
		return t
	}
	used := number(readText(filepath.Join(g.acct, "cpuacct.usage")))
	if used < 0 {
		return t
	}
	throttled, _ := statLine(g.text("cpu.stat"), "throttled_time")
	return groupTime{float64(quota) / float64(per), time.Duration(used), time.Duration(throttled)}
}

func (g group) text(name string) string { return readText(filepath.Join(g.cpu, name)) }

func readText(path string) string {
	p, _ := os.ReadFile(path) // what is not there says nothing
	return string(p)
}

// number is the number that s is; -1: it is none.
func number(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// statLine is the number of a line "name number".
func statLine(stat, name string) (n int64, ok bool) {
	for line := range strings.Lines(stat) {
		if rest, is := strings.CutPrefix(line, name+" "); is {
			n = number(rest)
			return n, n >= 0
		}
	}
	return 0, false
}

// limits are what was done between b and u in each of the groups that have a limit.
func (u cpuTime) limits(b cpuTime) (list []load) {
	passed := float64(u.at.Sub(b.at))
	if passed <= 0 || len(u.groups) != len(b.groups) {
		return nil
	}
	for i, t := range u.groups {
		if was := b.groups[i]; t.quota > 0 && was.quota > 0 {
			list = append(list, load{
				all: t.quota, busy: float64(t.used-was.used) / passed, own: float64(u.own-b.own) / passed,
				waiting: float64(t.throttled-was.throttled) / passed,
			})
		}
	}
	return list
}
