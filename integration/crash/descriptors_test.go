package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"ckptfs/integration/mounttest"

	"golang.org/x/sys/unix"
)

// TestFewDescriptors: a daemon that may have few descriptors takes any number of files, one after the other.
// When programs have all descriptors that they may have, they get EMFILE, and commands are answered.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	m := mounttest.Prepare(t, t.TempDir())
	few := filepath.Join(t.TempDir(), "few")
	m.Must(os.WriteFile(few, fmt.Appendf(nil, "#!/bin/sh\nulimit -n 256\nexec %s \"$@\"\n", m.Bin), 0o755))
	m.Bin = few
	err := m.Start()
	m.Must(err)
	for i := range 1000 {
		m.Write(fmt.Sprint(i), mounttest.Noise(uint64(i), 1000))
	}
	m.Sync()
	var open []*os.File
	for i := 0; err == nil && i < 1000; i++ {
		var f *os.File
		if f, err = os.Open(m.Path(fmt.Sprint(i))); err == nil {
			open = append(open, f)
		}
	}
	t.Logf("%d files are open, then: %v", len(open), err)
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("%v, want EMFILE", err)
	}
	m.Run("status", m.Dir)
	m.Run("sync", m.Dir)
	for _, f := range open {
		f.Close()
	}
	m.Want("7", mounttest.Noise(7, 1000))
	m.Write("after", mounttest.Noise(8, 1000))
	m.Remount()
	m.Want("after", mounttest.Noise(8, 1000))
}
