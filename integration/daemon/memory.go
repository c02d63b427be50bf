package daemon

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is a figure of a process's memory in bytes, such as RssAnon or VmHWM: proc_pid_status(5).
func Memory(pid int, key string) (int64, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			kB, _, _ := strings.Cut(strings.TrimSpace(value), " ")
			n, err := strconv.ParseInt(kB, 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no %s: the process has ended", path, key)
}
