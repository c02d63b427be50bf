package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ckptfs/cas/golden"
)

// Sets of capabilities, as /proc/self/status has them: all, Docker's, none.
const (
	all     = "CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n"
	some    = "CapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\n"
	ofUsers = "CapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\n"
)

// machine is a host with the files that are given, beside a /dev/fuse that can be opened. A file of "-" is
// not there.
func machine(t *testing.T, uid int, files map[string]string) *Host {
	t.Helper()
	root := t.TempDir()
	status := ofUsers
	if uid == 0 {
		status = all
	}
	with := map[string]string{
		"dev/fuse": "", "bin/fusermount3": "",
		"proc/self/status": status, "proc/self/uid_map": "0 0 4294967295\n",
	}
	for path, says := range files {
		with[path] = says
	}
	for path, says := range with {
		if says == "-" {
			continue
		}
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(says), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(root, "bin/fusermount3")
	if files["bin/fusermount3"] != "no s" {
		_ = os.Chmod(program, 0o755|os.ModeSetuid)
	}
	return &Host{
		root: root, uid: uid,
		getenv: func(name string) string { return files["$"+name] },
		find: func(string) (string, error) {
			_, err := os.Stat(program)
			return program, err
		},
		nosuid: func(string) bool { return files["nosuid"] != "" },
		named:  func(uid int) bool { return uid < 60000 },
	}
}

// TestCannot: what is said of each cause, before a mount. The golden is what people read.
func TestCannot(t *testing.T) {
	const noRights = ofUsers + "NoNewPrivs:\t1\n"
	var b strings.Builder
	for _, c := range []struct {
		what  string
		uid   int
		other bool
		files map[string]string
	}{
		{"root", 0, true, nil},
		{"a user", 1000, false, nil},
		{"no module", 1000, false, map[string]string{"dev/fuse": "-"}},
		{"no device, the module is there", 0, false, map[string]string{
			"dev/fuse": "-", "proc/filesystems": "nodev\tproc\n\text4\nnodev\tfuse\n"}},
		{"no more modules", 0, false, map[string]string{
			"dev/fuse": "-", "proc/filesystems": "nodev\tfusectl\n", "proc/sys/kernel/modules_disabled": "1\n"}},
		{"docker without the device", 0, false, map[string]string{"dev/fuse": "-", ".dockerenv": ""}},
		{"docker without the right", 0, false, map[string]string{".dockerenv": "", "proc/self/status": some}},
		{"podman without the device", 0, false, map[string]string{"dev/fuse": "-", "run/.containerenv": ""}},
		{"lxc without the device", 0, false, map[string]string{"dev/fuse": "-", "$container": "lxc"}},
		{"nspawn", 0, false, map[string]string{"dev/fuse": "-", "run/systemd/container": "systemd-nspawn\n"}},
		{"kubernetes", 0, false, map[string]string{"dev/fuse": "-", "$KUBERNETES_SERVICE_HOST": "10.0.0.1"}},
		{"kubernetes without the right", 1000, false, map[string]string{
			"var/run/secrets/kubernetes.io/x": "", "proc/self/status": some}},
		{"a service without the right", 0, false, map[string]string{"proc/self/status": some}},
		{"no fusermount3 on Debian", 1000, false, map[string]string{
			"bin/fusermount3": "-", "etc/os-release": "NAME=Debian\nID=debian\n"}},
		{"no fusermount3 on Rocky", 1000, false, map[string]string{
			"bin/fusermount3": "-", "etc/os-release": "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"}},
		{"no fusermount3, root needs none", 0, false, map[string]string{"bin/fusermount3": "-"}},
		{"fusermount3 is not set-user-id", 1000, false, map[string]string{"bin/fusermount3": "no s"}},
		{"fusermount3 on a filesystem without set-user-id", 1000, false, map[string]string{"nosuid": "yes"}},
		{"no new rights", 1000, false, map[string]string{"proc/self/status": noRights}},
		{"a user namespace without root", 65534, false, map[string]string{"proc/self/uid_map": "1000 1000 1\n"}},
		{"a user namespace without users", 65534, false, map[string]string{"proc/self/uid_map": "\n"}},
		{"others, forbidden", 1000, true, map[string]string{"etc/fuse.conf": "#user_allow_other\n"}},
		{"others, allowed", 1000, true, map[string]string{"etc/fuse.conf": "mount_max = 9\n user_allow_other\n"}},
	} {
		h := machine(t, c.uid, c.files)
		said := "mounts"
		if err := h.CheckFUSE(c.other); err != nil {
			said = strings.ReplaceAll(err.Error(), h.root, "")
		}
		fmt.Fprintf(&b, "%s:\n    %s\n", c.what, said)
	}
	golden.Same(t, "cannot.golden", b.String())
}

// ubuntu is a profile as Ubuntu has it.
const ubuntu = `# fusermount3
abi <abi/4.0>,
include <tunables/global>
@{fuse_types} = {fuse,fuse.*}
profile fusermount3 /usr/bin/fusermount3 {
  capability sys_admin,
  /dev/fuse rw,
  # mount fstype=fuse -> /commented/,
  mount fstype=@{fuse_types} options=(nosuid,nodev) options in (ro,rw,noatime) -> @{HOME}/**/,
  mount fstype=@{fuse_types} options=(nosuid,nodev) options in (ro,rw,noatime) -> /mnt/{,**/},
  mount fstype=@{fuse_types} options=(nosuid,nodev,ro) /dev/fuse -> "/tmp/**/",
  umount /mnt/{,**/},
  include if exists <local/fusermount3>
}
`

// TestRefused: what is said of a mount that was refused, and by whom.
func TestRefused(t *testing.T) {
	denied := errors.New("fusermount3: mount failed: Permission denied")
	eperm := fmt.Errorf("mount: %w", syscall.EPERM)
	eacces := fmt.Errorf("mount: %w", syscall.EACCES)
	apparmored := map[string]string{
		profile: ubuntu, local: "mount fstype=fuse -> /srv/,\n", apparmor: "Y\n",
	}
	moved := &os.LinkError{Op: "exchange", Old: "a", New: "b", Err: syscall.EACCES}
	if err := (&Host{}).Refused("/mnt", moved); err != moved {
		t.Errorf("what no mount refused: %v", err)
	}
	var b strings.Builder
	for _, c := range []struct {
		what  string
		uid   int
		at    string
		err   error
		files map[string]string
	}{
		{"Ubuntu's profile of fusermount3", 1000, "/data/ckpt", denied, apparmored},
		{"the same, a name with special characters", 1000, `/data/it's [1] "x"`, denied, apparmored},
		{"a profile, but no AppArmor", 0, "/data/ckpt", denied, map[string]string{profile: ubuntu, apparmor: "N\n"}},
		{"docker's profile", 0, "/mnt/x", eacces, map[string]string{
			".dockerenv": "", "proc/self/attr/current": "docker-default (enforce)\n"}},
		{"a pod's profile", 0, "/mnt/x", eacces, map[string]string{
			"$KUBERNETES_SERVICE_HOST":        "10.0.0.1",
			"proc/self/attr/apparmor/current": "cri-containerd.apparmor.d (enforce)\n"}},
		{"a user namespace on Ubuntu", 0, "/mnt/x", eacces, map[string]string{
			"proc/self/uid_map": "0 1000 1\n", restrictUserns: "1\n"}},
		{"a user namespace without mounts of its own", 0, "/mnt/x", eperm, map[string]string{
			"proc/self/uid_map": "0 1000 1\n"}},
		{"a user without a name", 70000, "/mnt/x", errors.New("fusermount3: could not determine username"), nil},
		{"root, seccomp", 0, "/mnt/x", eperm, nil},
		{"fusermount3 has a reason of its own", 1000, "/mnt/x",
			errors.New("fusermount3: too many FUSE filesystems mounted"), nil},
	} {
		h := machine(t, c.uid, c.files)
		fmt.Fprintf(&b, "%s:\n    %v\n", c.what, h.Refused(c.at, c.err))
		if err := h.Refused(c.at, c.err); strings.Contains(err.Error(), "/commented/") {
			t.Error("a rule in a comment counts")
		}
	}
	golden.Same(t, "refused.golden", b.String())
}

// TestLess: what a mount does without.
func TestLess(t *testing.T) {
	yama := func(scope string) map[string]string {
		return map[string]string{"proc/sys/kernel/yama/ptrace_scope": scope + "\n"}
	}
	var b strings.Builder
	for _, c := range []struct {
		what          string
		uid           int
		served, views bool
		files         map[string]string
	}{
		{"root, passthrough", 0, false, true, nil},
		{"root, served", 0, true, true, nil},
		{"a user", 1000, true, true, nil},
		{"root of a user namespace", 0, true, true, map[string]string{"proc/self/uid_map": "0 1000 1\n"}},
		{"a user under Yama", 1000, false, true, yama("1")},
		{"a user under Yama that restricts nothing", 1000, false, true, yama("0")},
		{"a user under Yama, without views", 1000, false, false, yama("1")},
		{"root under Yama", 0, false, true, yama("1")},
		{"root under Yama at its strictest", 0, false, true, yama("3")},
	} {
		fmt.Fprintf(&b, "%s:\n", c.what)
		for _, s := range machine(t, c.uid, c.files).Less(c.served, c.views) {
			fmt.Fprintf(&b, "    %s\n", s)
		}
	}
	golden.Same(t, "less.golden", b.String())
}
