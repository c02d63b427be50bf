// Package notebooks tests what a notebook uses of a store: parts of files without a mount, and the Python
// package, scripts/python/ckptfs: its frames, its graphs, its fsspec protocol, its types.
package notebooks

import (
	"os"
	"testing"

	"ckptfs/integration/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Main(m)) }
