package host

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
)

// Refused is the Error of a mount that the kernel or fusermount3 refused: who did, as far as that can be
// known, and what to do. err has what they said.
func (h *Host) Refused(mountpoint string, err error) error {
	said := strings.TrimSpace(err.Error())
	if moved := (*os.LinkError)(nil); errors.As(err, &moved) {
		return err // a folder could not be moved to where it is mounted
	}
	return &Error{fmt.Errorf("mount on %s: %s%s", mountpoint, said, h.why(mountpoint, said, err))}
}

func (h *Host) why(mountpoint, said string, err error) string {
	denied := errors.Is(err, syscall.EACCES) || strings.Contains(said, "Permission denied")
	byHelper := strings.Contains(said, helper+": mount failed")
	switch {
	case denied && byHelper && h.has(profile) && h.read(apparmor) == "Y":
		return h.byProfile(mountpoint)
	case denied && h.confined() != "":
		return fmt.Sprintf("; AppArmor's profile %s confines this process, and forbids mounts: %s", h.confined(),
			h.unconfine())
	case h.inUserNamespace() && h.read(restrictUserns) == "1":
		return "; AppArmor gives no rights in user namespaces that users make (kernel.apparmor_restrict_unprivileged_userns=1, Ubuntu 23.10 and later): mount outside of it, or `sysctl kernel.apparmor_restrict_unprivileged_userns=0` as root"
	case h.inUserNamespace():
		return "; a user namespace may mount only in a mount namespace of its own: `unshare --map-root-user --mount`, and in a container: " +
			h.container().start()
	case h.uid != 0 && !h.named(h.uid):
		return fmt.Sprintf("; fusermount3 mounts only for users with a name, and user %d has none in /etc/passwd", h.uid)
	case denied || errors.Is(err, syscall.EPERM):
		return "; mounting needs CAP_SYS_ADMIN, and that neither seccomp nor AppArmor forbids mount(2): " +
			h.container().start()
	}
	return ""
}

// profile is what AppArmor lets fusermount3 do, on Ubuntu since 24.10; local is what an administrator adds.
const (
	profile        = "etc/apparmor.d/fusermount3"
	local          = "etc/apparmor.d/local/fusermount3"
	apparmor       = "sys/module/apparmor/parameters/enabled"
	restrictUserns = "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
)

// confined is the profile of AppArmor that this process runs under, "" without one.
func (h *Host) confined() string {
	for _, path := range []string{"proc/self/attr/apparmor/current", "proc/self/attr/current"} {
		if name, ok := strings.CutSuffix(h.read(path), " (enforce)"); ok {
			return name
		}
	}
	return ""
}

func (h *Host) unconfine() string {
	if h.container() == kubernetes {
		return "the pod needs securityContext: {privileged: true}, or appArmorProfile: {type: Unconfined} besides SYS_ADMIN"
	}
	return "start the container with --security-opt apparmor=unconfined"
}

var mountRule = regexp.MustCompile(`(?m)^\s*mount\s[^#\n]*->\s*(.+),\s*$`)

// byProfile is what to do where fusermount3's profile forbids the place.
func (h *Host) byProfile(mountpoint string) string {
	var places []string
	for _, m := range mountRule.FindAllStringSubmatch(h.read(profile)+"\n"+h.read(local), -1) {
		if place := strings.Trim(m[1], `"`); !strings.Contains(strings.Join(places, " "), place) {
			places = append(places, place)
		}
	}
	below := ""
	if len(places) > 0 {
		below = fmt.Sprintf(" and allows mounts on %s only", strings.Join(places, ", "))
	}
	return fmt.Sprintf("; AppArmor's profile of fusermount3 (/%s) forbids it%s; the kernel's log (journalctl -k) has "+
		`apparmor="DENIED" operation="mount" profile="fusermount3" name="%s/". Mount there, have root mount, or allow this place, as root: %s`,
		profile, below, mountpoint, "`"+snippet(mountpoint)+"`")
}

// aaSpecial is what means something else than itself in a path of AppArmor's.
var aaSpecial = regexp.MustCompile(`[\\*?\[\]{}^"]`)

// snippet is the shell's command that lets fusermount3 mount on one folder.
func snippet(mountpoint string) string {
	place := `"` + aaSpecial.ReplaceAllString(mountpoint, `\$0`) + `/"`
	rules := []string{
		"mount fstype=fuse.ckptfs options=(nosuid,nodev)" +
			" options in (ro,rw,noatime,dirsync,nodiratime,noexec,sync) -> " + place + ",",
		"umount " + place + ",",
	}
	quoted := ""
	for _, r := range rules {
		quoted += " '" + strings.ReplaceAll(r, "'", `'\''`) + "'"
	}
	return `printf '%s\n'` + quoted + " >>/" + local + " && apparmor_parser -r /" + profile
}
