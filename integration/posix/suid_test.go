package posix

import (
	"os"
	"os/exec"
	"testing"

	"ckptfs/integration/mounttest"
)

// A write by anybody but root takes set-user-id away, as on ext4, also where the kernel writes by
// passthrough.
func TestSetUserIDGoesWithAWrite(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else for a moment")
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		mounttest.Missing(t, "no setpriv here (apt-get install util-linux)")
	}
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		m.Write("prog", []byte("#!/bin/sh\n"))
		m.Must(os.Chmod(m.Path("prog"), os.ModeSetuid|0o777))
		m.Must(os.Chmod(m.Dir, 0o777))
		sh := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c",
			"echo more >> prog")
		sh.Dir = m.Dir // the folders above are root's alone
		if out, err := sh.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		st, err := os.Stat(m.Path("prog"))
		m.Must(err)
		if st.Mode()&os.ModeSetuid != 0 {
			t.Errorf("the mode is still %v", st.Mode())
		}
	}, "--allow-other")
}
