package posix

import (
	"os"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"

	"ckptfs/integration/mounttest"
)

// TestSuitePosixtest: go-fuse's own tests of a mount.
func TestSuitePosixtest(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
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
