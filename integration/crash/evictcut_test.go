package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
	"ckptfs/integration/recipe"
)

// TestCutAfterEviction cuts the power after a file was packed and evicted, while the journal does not have
// its record yet. The kernel may have written the evicted inode's pages by then. The file is plain again,
// with every byte that its program had synced before.
func TestCutAfterEviction(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		// Of one block, and of several with a part of one at the end.
		for _, size := range []int{3000, 401586} {
			t.Run(fmt.Sprintf("%s/%d", fstype, size), func(t *testing.T) {
				t.Parallel()
				d := mounttest.NewDisk(t, fstype, 1<<30)
				m := mounttest.PrepareOn(d)
				m.Must(m.Start())
				want := recipe.Recipe{Kind: recipe.Safetensors, Seed: 1, Size: size}.Bytes()
				f, err := os.Create(m.Path("f"))
				m.Must(err)
				_, err = f.Write(want)
				m.Must(err)
				m.Must(f.Sync())
				root, err := os.Open(m.Dir)
				m.Must(err)
				m.Must(root.Sync())
				m.Must(root.Close())
				m.Must(f.Close())
				m.WantState("f", mounttest.Resident)
				m.Must(daemon.Until("f to be evicted", func() bool {
					m.RunOutcome("evict", m.Path("f"))
					return m.Show("f").State == mounttest.Packed
				}))

				inode, err := os.Open(filepath.Join(m.Store, "tree", "f"))
				m.Must(err)
				m.Must(unix.SyncFileRange(int(inode.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE_AND_WAIT))
				m.Must(inode.Close())
				m.Must(d.Cut(mounttest.JournalLost))
				m.Kill()
				m.EndOfPower(d)
				m.AnotherBoot()
				m.Must(m.Start())
				m.Want("f", want)
			})
		}
	}
}
