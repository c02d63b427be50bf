//go:build fault

package fusefs

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
)

// faultEnv names a file that says where the process is to end, in a program that was built to be tested: the
// number of a request's kind, a place, and how.
//
//	9 begun kill     kill -9 at the first MKDIR that comes to that place; the file is removed before
//	9 begun hang     that request stays there
//	9 begun panic    a crash at each
const faultEnv = "CKPTFS_FAULT"

var faultMu sync.Mutex

// fault ends the process, or what is done here, if a test wants it.
func fault(op uint32, place string) {
	file := os.Getenv(faultEnv)
	if file != "" && faulty(file, op, place) {
		select {}
	}
}

// faulty ends the process if a test wants it here, and reports whether it is to hang.
func faulty(file string, op uint32, place string) (hang bool) {
	faultMu.Lock()
	defer faultMu.Unlock()
	b, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	switch at := fmt.Sprint(op, " ", place, " "); strings.TrimSpace(string(b)) {
	case at + "kill":
		if os.Remove(file) == nil {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			return true
		}
	case at + "hang":
		return os.Remove(file) == nil
	case at + "panic":
		panic("a test wants this process to crash at " + at)
	}
	return false
}
