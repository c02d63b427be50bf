package main

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSignalTwice: a signal that comes twice at once, as timeout(1) sends it, lets a command end in order. A
// later one kills.
func TestSignalTwice(t *testing.T) {
	const as = "CKPTFS_TEST_SIGNALS"
	if os.Getenv(as) == "" {
		for _, signals := range []string{"2", "3"} {
			cmd := exec.Command(os.Args[0], "-test.run=^TestSignalTwice$")
			cmd.Env = append(os.Environ(), as+"="+signals)
			out, err := cmd.CombinedOutput()
			if killed := err != nil; killed != (signals == "3") {
				t.Errorf("%s signals: %v\n%s", signals, err, out)
			}
		}
		return
	}
	ctx, stop := untilSignal(unix.SIGTERM)
	defer stop()
	send := func() {
		if err := unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	send()
	<-ctx.Done()
	send()
	if os.Getenv(as) == "3" {
		for {
			send() // until it kills
		}
	}
}
