package integration

import (
	"os"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// TestSuitePosixtest: go-fuse's own tests of a mount.
func TestSuitePosixtest(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		for name, f := range posixtest.All {
			if name == "FcntlFlockLocksFile" { // wants two descriptors of one process to conflict, which on ext4 they do not
				continue
			}
			t.Run(name, func(t *testing.T) {
				dir := m.path(name)
				m.must(os.Mkdir(dir, 0o755))
				f(t, dir)
			})
		}
	})
}
