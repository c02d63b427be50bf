package host

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Less is what a mount that is there does without, a sentence each: served by the daemon though nobody asked
// for it; with views, and without seeing what calls are for.
func (h *Host) Less(served, views bool) (sentences []string) {
	if served {
		sentences = append(sentences, "reads and writes go through the daemon, and writes take two to three times as long as on the disk: "+h.faster())
	}
	if scope := h.read("proc/sys/kernel/yama/ptrace_scope"); views && h.hides(scope) {
		sentences = append(sentences, fmt.Sprintf("Yama (kernel.yama.ptrace_scope=%s) hides from the daemon what a call is for: a program that makes X.safetensors beside X.pt gets EEXIST if it asks for a new file; --no-views, a mount by root, or `sysctl kernel.yama.ptrace_scope=0` as root", scope))
	}
	return sentences
}

// hides says whether Yama keeps /proc/TID/syscall of the user's own processes from the daemon.
func (h *Host) hides(scope string) bool {
	return scope != "" && scope != "0" && (scope == "3" || !h.may("CapEff", unix.CAP_SYS_PTRACE))
}

// faster is what would let the kernel read and write by itself.
func (h *Host) faster() string {
	switch {
	case h.uid != 0:
		return "have root mount (systemd, fstab), on Linux 6.9 or later"
	case h.inUserNamespace():
		return "mount outside of the user namespace, as the machine's root"
	}
	return "docs/mounting.md, Served mode"
}
