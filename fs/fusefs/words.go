package fusefs

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// mountFlags are mount(2)'s flags by mount(8)'s words; a word of clear takes its flag away.
var mountFlags = map[string]struct {
	flag  uintptr
	clear bool
}{
	"noatime": {flag: unix.MS_NOATIME}, "atime": {flag: unix.MS_NOATIME, clear: true},
	"nodiratime": {flag: unix.MS_NODIRATIME}, "diratime": {flag: unix.MS_NODIRATIME, clear: true},
	"relatime": {flag: unix.MS_RELATIME}, "norelatime": {flag: unix.MS_RELATIME, clear: true},
	"strictatime": {flag: unix.MS_STRICTATIME}, "nostrictatime": {flag: unix.MS_STRICTATIME, clear: true},
	"sync": {flag: unix.MS_SYNCHRONOUS}, "async": {flag: unix.MS_SYNCHRONOUS, clear: true},
	"dirsync": {flag: unix.MS_DIRSYNC},
}

// mountWords says how the words of Options.Words, and ReadOnly, are told to mountDevice. Root's become flags
// of mount(2), by which there is no set-user-id and no devices unless told; those left, of which wordFlags
// has some, stay words. Others' all go to fusermount3, which knows most and whose defaults are the rest.
func mountWords(o Options) (words []string, flags uintptr) {
	if os.Geteuid() != 0 {
		for _, w := range o.Words {
			if f, ok := mountFlags[w]; !ok || !f.clear && f.flag != unix.MS_RELATIME &&
				f.flag != unix.MS_STRICTATIME {
				words = append(words, w)
			}
		}
		if o.ReadOnly {
			words = append(words, "ro")
		}
		return words, 0
	}
	flags = unix.MS_NOSUID | unix.MS_NODEV
	for _, w := range o.Words {
		f, ok := mountFlags[w]
		switch {
		case !ok:
			words = append(words, w)
		case f.clear:
			flags &^= f.flag
		default:
			flags |= f.flag
		}
	}
	if o.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	return slices.Clip(words), flags
}
