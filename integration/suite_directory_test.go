package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ckptfs/integration/daemon"
)

// TestSuiteDirectory: a directory of many names is listed by the usual programs as on a plain folder. In full it prints
// how long that takes, on the mount and on ext4.
func TestSuiteDirectory(t *testing.T) {
	t.Parallel()
	needFUSE(t)
	n := sized(5000, 100_000)
	m := suiteMount(t)
	plain := m.plainFolder()
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
		m.must(os.Mkdir(filepath.Join(dir, "d"), 0o755))
		for i := range n {
			f, err := os.OpenFile(filepath.Join(dir, "d", fmt.Sprintf("name-%06d", i)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			m.must(err)
			if i%10 == 0 {
				_, err = fmt.Fprintln(f, i)
				m.must(err)
			}
			m.must(f.Close())
		}
		return ""
	}
	both("create", fill)
	both("ls -f", sh("ls -f d | sort | cksum"))
	m.remount() // nothing of it is known to the kernel any more
	both("ls -f, after a mount", sh("ls -f d | sort | cksum"))
	both("ls -l", sh("ls -l --time-style=+ d | tail -n +2 | cksum"))
	both("ls -l again", sh("ls -l --time-style=+ d | tail -n +2 | cksum"))
	both("find", sh("find d -type f -size -1k -name '*7' | sort | cksum"))
	both("stat each", func(dir string) string {
		var size int64
		for i := range n {
			st, err := os.Stat(filepath.Join(dir, "d", fmt.Sprintf("name-%06d", i)))
			m.must(err)
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
	m := newMount(t)
	m.write("f", noise(1, 300<<10))
	const n = 5000
	for i := range n {
		m.must(os.Link(m.path("f"), m.path(fmt.Sprintf("l%05d", i))))
	}
	m.sh(`test "$(stat -c %h f)" = 5001; test "$(ls -l | grep -c " 5001 ")" = 5001`)
	for i := 0; i < n; i += 2 {
		m.must(os.Remove(m.path(fmt.Sprintf("l%05d", i))))
	}
	for i := 1; i < n; i += 2 {
		m.must(os.Rename(m.path(fmt.Sprintf("l%05d", i)), m.path(fmt.Sprintf("m%05d", i))))
	}
	m.evict("f")
	m.remount()
	m.want("m04999", noise(1, 300<<10))
	m.sh(`rm m*; test "$(stat -c %h f)" = 1`)
	m.want("f", noise(1, 300<<10))
}

// TestRemovedFilesPinNothing: what is removed does not keep descriptors of the daemon open, whether it was looked at,
// packed or evicted before.
func TestRemovedFilesPinNothing(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	fds := func() int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.PIDs()[0]))
		m.must(err)
		return len(entries)
	}
	m.write("d/first", noise(1, 100))
	before := fds()
	for i := range 300 {
		m.write(fmt.Sprintf("d/f%d", i), noise(uint64(i), 70<<10))
	}
	m.sync()
	m.sh("ls -l d >/dev/null; cat d/* >/dev/null")
	m.cli("evict", m.path("d"))
	m.sh("cat d/* >/dev/null; rm d/f*")
	for i := range 300 {
		m.write(fmt.Sprintf("d/g%d", i), noise(uint64(i), 100))
		m.must(os.Remove(m.path(fmt.Sprintf("d/g%d", i))))
	}
	if err := daemon.Until("removed files to be let go", func() bool { return fds() < before+60 }); err != nil {
		t.Errorf("%d descriptors, %d before: %v", fds(), before, err)
	}
}
