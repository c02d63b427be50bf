// Package pages tests the pages of ckptfs ui in a browser: Debian's chromium, driven by its DevTools
// protocol.
//
// Each page is loaded from a store of real runs. Nothing on it may fail or come from elsewhere, and what it
// says is what the commands say. axe-core, which scripts/setup-browser fetches, finds
// nothing that shuts people out.
package pages

import (
	"flag"
	"os"
	"testing"

	"ckptfs/integration/mounttest"
)

const mib = 1 << 20

var update = flag.Bool("update", false, "write the pictures of docs/pictures")

func TestMain(m *testing.M) { os.Exit(mounttest.Main(m)) }
