// Package posix tests whether a mount behaves as ext4 does: system calls, shell tools, and the suites
// pjdfstest, fsx, fio, stress-ng and posixtest.
package posix

import (
	"os"
	"testing"

	"ckptfs/integration/mounttest"
)

const mib = 1 << 20

func TestMain(m *testing.M) {
	if dir := os.Getenv(posixChildEnv); dir != "" {
		os.Exit(posixChild(dir))
	}
	os.Exit(mounttest.Main(m))
}
