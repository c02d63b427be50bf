package integration

import (
	"os"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// TestSuitePosixtest: go-fuse's own tests of a mount.
func TestSuitePosixtest(t *testing.T) {
	t.Parallel()
	Modes(t, func(t *testing.T, m *Mount) {
		for name, f := range posixtest.All {
			if name == "FcntlFlockLocksFile" { // wants two descriptors of one process to conflict, which on ext4 they do not
				continue
			}
			t.Run(name, func(t *testing.T) {
				dir := m.Path(name)
				m.Must(os.Mkdir(dir, 0o755))
				f(t, dir)
			})
		}
	})
}
