// Package outlive tests that a mount outlives its daemon: while programs use it the daemon is killed, again
// and again, and no call fails and no byte is wrong.
//
// The programs are processes of their own (worker_test.go), one for each kind of use (uses_test.go and
// names_test.go): each compares what every call gives with what it must.
package outlive

import (
	"os"
	"testing"

	"ckptfs/integration/mounttest"
)

func TestMain(m *testing.M) {
	if use := os.Getenv(asWorker); use != "" {
		os.Exit(workerMain(use))
	}
	os.Exit(mounttest.Main(m))
}
