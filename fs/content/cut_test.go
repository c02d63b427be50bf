package content

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// onDisk is what a power cut leaves of an inode, at worst: of the bytes what was synced, of the record the
// latest.
type onDisk struct {
	synced []byte
	rec    tree.Record
}

// cut is what a power cut would leave now of the file f.
func (r *rig) cut() onDisk {
	r.t.Helper()
	at := r.known["f"].at()
	rec, err := tree.ReadRecord(at)
	if err != nil && !errors.Is(err, tree.ErrNoRecord) {
		r.t.Fatal(err)
	}
	return onDisk{r.disk.syncedOf(at), rec}
}

// restart has the file f be what a power cut left, as the next start finds it.
func (r *rig) restart(d onDisk) {
	r.t.Helper()
	at := r.known["f"].at()
	var st unix.Stat_t
	err := unix.Stat(at, &st)
	if err == nil {
		err = os.WriteFile(at, d.synced, 0)
	}
	if err == nil {
		err = unix.UtimesNanoAt(unix.AT_FDCWD, at, []unix.Timespec{st.Atim, st.Mtim}, 0)
	}
	if err == nil {
		err = tree.WriteRecord(at, &d.rec)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.forget()
	r.Unclean = true
	f := r.file("f")
	f.Lock()
	defer f.Unlock()
	if err := f.LoadLocked(); err != nil {
		r.t.Fatal(err)
	}
	if f.rec.Packed() {
		if err := f.DisbelieveLocked(); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Whenever the power is cut, a file that loses its manifest has its bytes: they are on the disk before its
// record says so, and not only in the page cache.
func TestCutBeforeSync(t *testing.T) {
	old := random(200<<10, 1)
	for _, from := range []string{"resident", "unknown", "durable", "packed"} {
		for k := 0; ; k++ {
			steps := 0
			t.Run(fmt.Sprintf("%s, %d", from, k), func(t *testing.T) {
				r := newRig(t)
				r.writtenAs(from, old)
				at := r.known["f"].at()
				r.disk.watch(at, from == "durable")
				var left onDisk
				r.Step = func(what string) error {
					if strings.HasPrefix(what, "hollow: ") {
						return nil // under a lease, which a look would wait for
					}
					if steps++; steps == k+1 {
						left = r.cut()
					}
					return nil
				}
				r.open("f", unix.O_RDWR).Release()
				r.Step = func(string) error { return nil }
				if steps <= k {
					left = r.cut()
				}
				r.restart(left)
				r.same("f", old)
			})
			if steps <= k || t.Failed() {
				break
			}
		}
	}
}
