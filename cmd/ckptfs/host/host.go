// Package host says why this machine, this container or this user cannot mount, or mounts with less than
// there could be, and what to do about it:
//
//	host.go      what the kernel and the files of the system say of this process
//	device.go    before a mount: what is missing
//	refused.go   after one that was refused: by whom
//	less.go      of one that is there: what it does without
//
// Nothing here tries anything. Every answer is made from what files say, so that tests can show it the files
// of other machines.
package host

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Error is why nothing can be mounted.
type Error struct{ err error }

func (e *Error) Error() string {
	return e.err.Error() + ". Without a mount, `ckptfs ls|cat|cp|export STORE/PATH` read a store"
}

func (e *Error) Unwrap() error { return e.err }

// Host is a process and the machine that it runs on.
type Host struct {
	root   string                   // "" or a folder that stands for /
	uid    int                      // who mounts
	getenv func(name string) string // of the process
	find   func(program string) (path string, err error)
	nosuid func(path string) bool // the filesystem there ignores set-user-id
	named  func(uid int) bool     // the user has a name
}

// Here is this process.
func Here() *Host {
	return &Host{
		uid: os.Geteuid(), getenv: os.Getenv, find: exec.LookPath,
		nosuid: func(path string) bool {
			var st unix.Statfs_t
			return unix.Statfs(path, &st) == nil && st.Flags&unix.ST_NOSUID != 0
		},
		named: func(uid int) bool {
			_, err := user.LookupId(strconv.Itoa(uid))
			return err == nil
		},
	}
}

// read is what a file says, "" if it cannot be read.
func (h *Host) read(path string) string {
	b, _ := os.ReadFile(filepath.Join(h.root+"/", path))
	return strings.TrimSpace(string(b))
}

func (h *Host) has(path string) bool {
	_, err := os.Stat(filepath.Join(h.root+"/", path))
	return err == nil
}

// status is a line of /proc/self/status.
func (h *Host) status(name string) string {
	for line := range strings.Lines(h.read("proc/self/status")) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// may says whether a set of capabilities, CapEff or CapBnd, has one; of a set that is not known, yes.
func (h *Host) may(set string, capability int) bool {
	bits, err := strconv.ParseUint(h.status(set), 16, 64)
	return err != nil || bits&(1<<capability) != 0
}

// uidMap is a map of the user namespace: empty until somebody writes it, and then no user has a name in it.
const uidMap = "proc/self/uid_map"

// ids are the lines of the map: first inside, first outside, count.
func (h *Host) ids() (lines [][]string) {
	for line := range strings.Lines(h.read(uidMap)) {
		if f := strings.Fields(line); len(f) == 3 {
			lines = append(lines, f)
		}
	}
	return lines
}

// inUserNamespace says whether the process is in another user namespace than the machine.
func (h *Host) inUserNamespace() bool {
	m := h.ids()
	return h.has(uidMap) && (len(m) == 0 || !slices.Equal(m[0], []string{"0", "0", "4294967295"}))
}

// hasRoot says whether the user namespace has a user 0, whom a set-user-id program would become.
func (h *Host) hasRoot() bool {
	return !h.has(uidMap) || slices.ContainsFunc(h.ids(), func(f []string) bool { return f[0] == "0" })
}

// container is what keeps the process from the machine, as its maker leaves a sign of it.
type container string

const (
	none       container = ""
	docker     container = "docker"
	podman     container = "podman"
	kubernetes container = "kubernetes"
	lxc        container = "lxc"
	unknown    container = "container"
)

func (h *Host) container() container {
	switch {
	case h.getenv("KUBERNETES_SERVICE_HOST") != "", h.has("var/run/secrets/kubernetes.io"):
		return kubernetes
	case h.has("run/.containerenv"):
		return podman
	case h.has(".dockerenv"):
		return docker
	}
	// systemd in a container writes down what its environment says.
	switch kind := h.getenv("container") + h.read("run/systemd/container"); {
	case kind == "":
		return none
	case strings.HasPrefix(kind, "lxc"):
		return lxc
	case strings.HasPrefix(kind, "docker"), strings.HasPrefix(kind, "podman"):
		return container(kind[:6])
	}
	return unknown
}

// start is how a container has to be started that mounts.
func (c container) start() string {
	switch c {
	case kubernetes:
		return "a pod that mounts needs securityContext: {privileged: true}; or mount on the node, and give pods the mount as a hostPath: docs/mounting.md, In Kubernetes"
	case podman:
		return "start the container with --device /dev/fuse --cap-add SYS_ADMIN"
	case lxc:
		return "on the host: `lxc config device add NAME fuse unix-char path=/dev/fuse`, with lxc's own tools `lxc.mount.entry = /dev/fuse dev/fuse none bind,create=file`"
	}
	return "start the container with --device /dev/fuse --cap-add SYS_ADMIN --security-opt apparmor=unconfined"
}
