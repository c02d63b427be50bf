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
//	9 begun panic    a crash at each
const faultEnv = "CKPTFS_FAULT"

var faultMu sync.Mutex

// fault ends the process if a test wants it here.
func fault(op uint32, place string) {
	file := os.Getenv(faultEnv)
	if file == "" {
		return
	}
	faultMu.Lock()
	defer faultMu.Unlock()
	b, err := os.ReadFile(file)
	if err != nil {
		return
	}
	switch at := fmt.Sprint(op, " ", place, " "); strings.TrimSpace(string(b)) {
	case at + "kill":
		if os.Remove(file) == nil {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	case at + "panic":
		panic("a test wants this process to crash at " + at)
	}
}
