// Package commands tests what the commands do, mounted and unmounted, and the daemon's bounds on memory,
// space and permissions.
package commands

import (
	"os"
	"testing"

	"ckptfs/integration/mounttest"
)

const mib = 1 << 20

func TestMain(m *testing.M) { os.Exit(mounttest.Main(m)) }
