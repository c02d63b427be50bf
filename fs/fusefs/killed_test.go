package fusefs

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A thread that ends by a signal is told from one that exits, and from one that goes on.
func TestEndsBySignal(t *testing.T) {
	stat := func(flags, status string) string {
		fields := strings.Fields(strings.Repeat("1 ", 52))
		fields[1], fields[2], fields[statFlags-1], fields[statStatus-1] = "(a) R 7 (b)", "R", flags, status
		return strings.Join(fields, " ") + "\n"
	}
	for line, want := range map[string]bool{
		stat("4194304", "0"): false,
		stat("4228356", "9"): true, stat("4228356", "15"): true, stat("4228356", "139"): true,
		stat("4228356", "256"): false, stat("4228100", "0"): false, // exit(1), exit(0)
		"": false, "7 (sh": false, stat("x", "9"): false,
	} {
		if got := endsBySignal([]byte(line)); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
	if killed(0) || killed(uint32(unix.Gettid())) {
		t.Error("this thread is not ending")
	}
	c := exec.Command("/bin/sh", "-c", "kill -9 $$")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	// What was not waited for has all that an ending thread has.
	for !strings.Contains(statOf(t, c.Process.Pid), ") Z ") {
		if t.Context().Err() != nil {
			t.Fatal("it did not end")
		}
	}
	if !killed(uint32(c.Process.Pid)) {
		t.Errorf("%q", statOf(t, c.Process.Pid))
	}
}

func statOf(t *testing.T, pid int) string {
	t.Helper()
	p, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	return string(p)
}
