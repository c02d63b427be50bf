// Package crash tests what is left after kills, power cuts, full disks, damage and hostile input.
package crash

import (
	"os"
	"testing"

	"ckptfs/integration/mounttest"
)

const mib = 1 << 20

func TestMain(m *testing.M) { os.Exit(mounttest.Main(m)) }
