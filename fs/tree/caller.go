package tree

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Caller is the user who asks for something. What is made new belongs to the caller. The zero Caller is root:
// what the daemon asks itself.
type Caller struct {
	UID, GID uint32
	Thread   uint32 // 0 when unknown
}

// Permissions, as one class of a mode has them.
const (
	MayRead  = 4
	MayWrite = 2
	MayEnter = 1
)

// Guard is what decides who may do something to an inode.
type Guard struct {
	Mode, UID, GID uint32
	Need           uint32 // of MayRead, MayWrite and MayEnter
}

// GuardOf is the guard of an inode.
func GuardOf(a *Attr, need uint32) Guard { return Guard{a.Mode & 0o777, a.UID, a.GID, need} }

// Asker is a Caller whose groups are known. It is for one request: groups may change.
type Asker struct {
	Caller
	groups []uint32
	read   bool // groups were read
}

// Passes reports whether a guard lets the caller through. User 0 passes. Capabilities are not looked at.
func (a *Asker) Passes(g Guard) bool {
	owner := g.Mode>>6&g.Need == g.Need
	group := g.Mode>>3&g.Need == g.Need
	others := g.Mode&g.Need == g.Need
	switch {
	case a.UID == 0:
		return true
	case a.UID == g.UID:
		return owner
	case a.GID == g.GID:
		return group
	case group == others: // no need to know
		return others
	case a.inGroup(g.GID):
		return group
	}
	// Where the groups cannot be read the caller may be in this one, and the mode may deny it something.
	return others && a.groups != nil
}

// inGroup reports whether a group is among the caller's supplementary groups.
func (a *Asker) inGroup(gid uint32) bool {
	if !a.read {
		a.read = true
		a.groups = groupsOf(a.Caller)
	}
	return slices.Contains(a.groups, gid)
}

// groupsOf reads the supplementary groups of a caller's thread, which waits for its answer meanwhile. It is
// nil if they cannot be read, or if the thread acts as another user than it is, as a server of files does.
func groupsOf(c Caller) []uint32 {
	status := statusOf(c.Thread)
	if status == nil || len(status["Uid"]) != 4 || len(status["Gid"]) != 4 ||
		status["Uid"][3] != strconv.FormatUint(uint64(c.UID), 10) ||
		status["Gid"][3] != strconv.FormatUint(uint64(c.GID), 10) {
		return nil
	}
	groups := []uint32{}
	for _, s := range status["Groups"] {
		// A group that this user namespace has no number for is shown as this one.
		if gid, err := strconv.ParseUint(s, 10, 32); err == nil && gid != overflowGID {
			groups = append(groups, uint32(gid))
		}
	}
	return groups
}

const overflowGID = 65534

// statusOf is /proc/TID/status, by its keys; nil where it cannot be read, as of a thread in another pid
// namespace, whose number the kernel does not tell.
func statusOf(thread uint32) map[string][]string {
	if thread == 0 {
		return nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	if err != nil {
		return nil
	}
	out := map[string][]string{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, len(b)+1)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		out[key] = strings.Fields(value)
	}
	return out
}

// Admin reports whether the caller has CAP_SYS_ADMIN where the daemon is: in its user namespace. Where that
// cannot be read user 0 has it.
func (c Caller) Admin() bool {
	status := statusOf(c.Thread)
	var own, other unix.Stat_t
	if len(status["CapEff"]) != 1 || unix.Stat("/proc/self/ns/user", &own) != nil ||
		unix.Stat(fmt.Sprintf("/proc/%d/ns/user", c.Thread), &other) != nil {
		return c.UID == 0
	}
	caps, err := strconv.ParseUint(status["CapEff"][0], 16, 64)
	return err == nil && caps>>unix.CAP_SYS_ADMIN&1 == 1 && own.Ino == other.Ino && own.Dev == other.Dev
}
