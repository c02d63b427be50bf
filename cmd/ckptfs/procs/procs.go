// Package procs finds the processes that use a mount, in /proc alone: it never asks the mount, which may not
// answer.
package procs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ckptfs/cmd/ckptfs/text"

	"github.com/moby/sys/mountinfo"
)

// Device is a mounted filesystem's number, the same in every mount namespace.
type Device struct{ Major, Minor int }

// finder finds who uses a mount.
type finder struct {
	proc   string
	dev    Device
	spaces map[string]*space // by namespace
}

// space is what one mount namespace shows of the mount.
type space struct {
	ids    map[int]bool // of its mounts there
	points []string     // where they are
	nested []string     // what else is mounted below them
}

// Using lists the processes that keep the mount from going, as far as this user may see them, of all mount
// namespaces: "python3 (812: open runs/a/model.pt)". Then what is mounted below it.
func Using(proc string, dev Device) []string {
	f := &finder{proc: proc, dev: dev, spaces: map[string]*space{}}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		p := filepath.Join(proc, e.Name())
		sp := f.space(p)
		if sp == nil || len(sp.points) == 0 {
			continue
		}
		if how := f.uses(p, sp); how != "" {
			out = append(out, fmt.Sprintf("%s (%s: %s)", commandOf(p), e.Name(), how))
		}
	}
	if own := f.space(filepath.Join(proc, "self")); own != nil {
		for _, point := range own.nested {
			out = append(out, "what is mounted on "+Unmounting(point))
		}
	}
	return out
}

// Elsewhere lists where a mount still is: the places that this process sees, and a process for each other
// mount namespace: "on /srv/models (`umount /srv/models` ends that)", "by job (14), on /work".
func Elsewhere(proc string, dev Device) []string {
	f := &finder{proc: proc, dev: dev, spaces: map[string]*space{}}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	mine, _ := os.Readlink(filepath.Join(proc, "self", "ns", "mnt"))
	seen := map[string]bool{mine: true}
	var out []string
	if sp := f.space(filepath.Join(proc, "self")); sp != nil {
		for _, point := range sp.points {
			out = append(out, "on "+Unmounting(point))
		}
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		p := filepath.Join(proc, e.Name())
		ns, err := os.Readlink(filepath.Join(p, "ns", "mnt"))
		if err != nil || seen[ns] || ofKernel(p) {
			continue
		}
		seen[ns] = true
		if sp := f.space(p); sp != nil && len(sp.points) > 0 {
			out = append(out, fmt.Sprintf("by %s (%s), on %s", commandOf(p), e.Name(),
				text.Printable(sp.points[0])))
		}
	}
	return out
}

// Unmounting is a mountpoint of this namespace, with the command that ends the mount.
func Unmounting(point string) string {
	return fmt.Sprintf("%s (`umount %s` ends that)", text.Printable(point), text.Word(point))
}

// ofKernel reports whether a process is a thread of the kernel: it is in a mount namespace, and uses none.
func ofKernel(proc string) bool {
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return false
	}
	// pid (comm) state ppid pgrp session tty tpgid flags: comm may have anything in it
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 7 {
		return false
	}
	const kthread = 0x00200000 // PF_KTHREAD
	flags, err := strconv.ParseUint(string(f[6]), 10, 64)
	return err == nil && flags&kthread != 0
}

func commandOf(proc string) string {
	comm, _ := os.ReadFile(filepath.Join(proc, "comm"))
	return text.Printable(string(bytes.TrimSpace(comm)))
}

// space reads the mounts that a process has; nil when this user may not see them.
func (f *finder) space(proc string) *space {
	ns, err := os.Readlink(filepath.Join(proc, "ns", "mnt"))
	if err != nil {
		return nil
	}
	if sp, ok := f.spaces[ns]; ok {
		return sp
	}
	file, err := os.Open(filepath.Join(proc, "mountinfo"))
	if err != nil {
		return nil
	}
	defer file.Close()
	mounts, err := mountinfo.GetMountsFromReader(file, nil)
	if err != nil {
		return nil
	}
	sp, at := &space{ids: map[int]bool{}}, map[int]string{}
	for _, m := range mounts {
		if m.Major == f.dev.Major && m.Minor == f.dev.Minor {
			sp.ids[m.ID] = true
			sp.points, at[m.ID] = append(sp.points, m.Mountpoint), m.Mountpoint
		}
	}
	for _, m := range mounts {
		// Also a part of the mount that is bound into it; but not what covers it as a whole.
		if sp.ids[m.Parent] && (!sp.ids[m.ID] || m.Mountpoint != at[m.Parent]) {
			sp.nested = append(sp.nested, m.Mountpoint)
		}
	}
	f.spaces[ns] = sp
	return sp
}

// uses says how a process uses the mount, or "".
func (f *finder) uses(proc string, sp *space) string {
	var how []string
	for _, link := range []string{"cwd", "root", "exe"} {
		to, err := os.Readlink(filepath.Join(proc, link))
		if err != nil {
			continue
		}
		if name, ok := sp.inside(to); ok {
			how = append(how, strings.TrimSpace(link+" "+name))
		}
	}
	if names := f.open(proc, sp); len(names) > 0 {
		how = append(how, "open "+some(names))
	}
	if names := f.mapped(proc, sp); len(names) > 0 {
		how = append(how, "mapped "+some(names))
	}
	return strings.Join(how, "; ")
}

// some is the first name, and how many more there are.
func some(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}

// inside is the path within the mount of one that the kernel told, if it is in one.
func (sp *space) inside(path string) (string, bool) {
	for _, point := range sp.points {
		rest, ok := strings.CutPrefix(path, strings.TrimSuffix(point, "/"))
		if ok && (rest == "" || rest[0] == '/') {
			return text.Printable(strings.TrimPrefix(rest, "/")), true
		}
	}
	return "", false
}

// open lists the files of the mount that a process has open, by the mount that each descriptor came through.
func (f *finder) open(proc string, sp *space) []string {
	var names []string
	fds, _ := os.ReadDir(filepath.Join(proc, "fd"))
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(proc, "fd", fd.Name()))
		if err != nil {
			continue
		}
		id := mountID(filepath.Join(proc, "fdinfo", fd.Name()))
		name, ok := sp.inside(to)
		switch {
		case id != 0 && !sp.ids[id], id == 0 && !ok:
			continue
		case !ok:
			name = text.Printable(to)
		case name == "":
			name = "its root"
		}
		names = append(names, name)
	}
	return names
}

// mountID is the mount of an open file, 0 if it cannot be known.
func mountID(fdinfo string) int {
	b, err := os.ReadFile(fdinfo)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			id, _ := strconv.Atoi(strings.TrimSpace(v))
			return id
		}
	}
	return 0
}

// mapped lists the files of the mount that a process maps. A line is
//
//	address perms offset major:minor inode   path
func (f *finder) mapped(proc string, sp *space) []string {
	maps, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		return nil
	}
	dev := fmt.Sprintf("%02x:%02x", f.dev.Major, f.dev.Minor)
	var names []string
	seen := map[string]bool{}
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[3] != dev {
			continue
		}
		_, path, _ := strings.Cut(line, " /")
		path = "/" + strings.TrimSpace(path)
		name, ok := sp.inside(path)
		if !ok {
			name = text.Printable(path)
		}
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// Users lists the processes that use a mount, in words; "" when nobody is seen.
func Users(dev Device) string {
	if dev == (Device{}) {
		return ""
	}
	who := Using("/proc", dev)
	const most = 5
	more := ""
	if len(who) > most {
		more = fmt.Sprintf(" and %d more", len(who)-most)
		who = who[:most]
	}
	return strings.Join(who, ", ") + more
}
