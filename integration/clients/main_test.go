// Package clients tests whether programs and libraries save and load on a mount, unchanged, and what their
// checkpoints take in the store.
package clients

import (
	"os"
	"testing"

	"ckptfs/integration/mounttest"
)

const mib = 1 << 20

func TestMain(m *testing.M) { os.Exit(mounttest.Main(m)) }
