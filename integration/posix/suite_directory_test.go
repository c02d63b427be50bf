package posix

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// TestSuiteDirectory: a directory of many names is listed by the usual programs as on a plain folder. In full
// it prints how long that takes, on the mount and on ext4.
func TestSuiteDirectory(t *testing.T) {
	t.Parallel()
	mounttest.NeedFUSE(t)
	n := sized(5000, 100_000)
	m := suiteMount(t)
	plain := plainFolder(m)
	took := map[string][2]time.Duration{}
	var order []string
	both := func(what string, f func(dir string) string) {
		var out [2]string
		var times [2]time.Duration
		for i, dir := range []string{m.Dir, plain} {
			start := time.Now()
			out[i] = f(dir)
			times[i] = time.Since(start)
		}
		if out[0] != out[1] {
			t.Errorf("%s: not the same: %d bytes and %d", what, len(out[0]), len(out[1]))
		}
		took[what] = times
		order = append(order, what)
	}
	sh := func(command string) func(dir string) string {
		return func(dir string) string {
			cmd := exec.Command("sh", "-ec", command)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v: %s", command, err, tail(string(out), 5))
			}
			return string(out)
		}
	}
	fill := func(dir string) string {
		m.Must(os.Mkdir(filepath.Join(dir, "d"), 0o755))
		for i := range n {
			f, err := os.OpenFile(filepath.Join(dir, "d", fmt.Sprintf("name-%06d", i)),
				os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			m.Must(err)
			if i%10 == 0 {
				_, err = fmt.Fprintln(f, i)
				m.Must(err)
			}
			m.Must(f.Close())
		}
		return ""
	}
	both("create", fill)
	both("ls -f", sh("ls -f d | sort | cksum"))
	m.Remount() // nothing of it is known to the kernel any more
	both("ls -f, after a mount", sh("ls -f d | sort | cksum"))
	both("ls -l", sh("ls -l --time-style=+ d | tail -n +2 | cksum"))
	both("ls -l again", sh("ls -l --time-style=+ d | tail -n +2 | cksum"))
	both("find", sh("find d -type f -size -1k -name '*7' | sort | cksum"))
	both("stat each", func(dir string) string {
		var size int64
		for i := range n {
			st, err := os.Stat(filepath.Join(dir, "d", fmt.Sprintf("name-%06d", i)))
			m.Must(err)
			size += st.Size()
		}
		return fmt.Sprint(size)
	})
	both("half of it removed", sh("ls d | grep '[02468]$' | (cd d; xargs rm); ls d | cksum"))
	both("rm -r", sh("rm -r d; ls"))
	var b strings.Builder
	for _, what := range order {
		x := took[what]
		fmt.Fprintf(&b, "%-24s %8.0f ms %8.0f ms on ext4 %6.2fx\n", what, x[0].Seconds()*1e3, x[1].Seconds()*1e3, x[0].Seconds()/x[1].Seconds())
	}
	t.Logf("%d names:\n%s", n, b.String())
}

// TestManyLinks: a file of very many names is not slower by name than one of few.
func TestManyLinks(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("f", mounttest.Noise(1, 300<<10))
	const n = 5000
	for i := range n {
		m.Must(os.Link(m.Path("f"), m.Path(fmt.Sprintf("l%05d", i))))
	}
	m.Sh(`test "$(stat -c %h f)" = 5001; test "$(ls -l | grep -c " 5001 ")" = 5001`)
	for i := 0; i < n; i += 2 {
		m.Must(os.Remove(m.Path(fmt.Sprintf("l%05d", i))))
	}
	for i := 1; i < n; i += 2 {
		m.Must(os.Rename(m.Path(fmt.Sprintf("l%05d", i)), m.Path(fmt.Sprintf("m%05d", i))))
	}
	m.Evict("f")
	m.Remount()
	m.Want("m04999", mounttest.Noise(1, 300<<10))
	m.Sh(`rm m*; test "$(stat -c %h f)" = 1`)
	m.Want("f", mounttest.Noise(1, 300<<10))
}

// TestRemovedFilesPinNothing: what is removed does not keep descriptors of the daemon open, whether it was
// looked at, packed or evicted before.
func TestRemovedFilesPinNothing(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	fds := func() int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.DaemonPID()))
		m.Must(err)
		return len(entries)
	}
	m.Write("d/first", mounttest.Noise(1, 100))
	before := fds()
	for i := range 300 {
		m.Write(fmt.Sprintf("d/f%d", i), mounttest.Noise(uint64(i), 70<<10))
	}
	m.Sync()
	m.Sh("ls -l d >/dev/null; cat d/* >/dev/null")
	m.Run("evict", m.Path("d"))
	m.Sh("cat d/* >/dev/null; rm d/f*")
	for i := range 300 {
		m.Write(fmt.Sprintf("d/g%d", i), mounttest.Noise(uint64(i), 100))
		m.Must(os.Remove(m.Path(fmt.Sprintf("d/g%d", i))))
	}
	if err := daemon.Until("removed files to be let go", func() bool { return fds() < before+60 }); err != nil {
		t.Errorf("%d descriptors, %d before: %v", fds(), before, err)
	}
}
