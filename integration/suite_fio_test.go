package integration

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// TestSuiteFio: fio reads back what it wrote, at once and after eviction, by several ways of writing and reading.
func TestSuiteFio(t *testing.T) {
	t.Parallel()
	program := suiteTool(t, "fio")
	for _, flags := range [][]string{nil, {"--no-passthrough"}} {
		t.Run(fmt.Sprint("flags", flags), func(t *testing.T) {
			t.Parallel()
			m := suiteMount(t, flags...)
			jobs := []struct{ engine, pattern, direct string }{
				{"psync", "write", "0"}, {"psync", "randwrite", "0"}, {"psync", "randrw", "1"}, {"mmap", "write", "0"},
				{"mmap", "randwrite", "0"}, {"libaio", "randwrite", "1"}, {"libaio", "write", "0"}, {"vsync", "randwrite", "0"},
				{"splice", "write", "0"}, {"io_uring", "randwrite", "0"}, {"pvsync2", "rw", "0"},
			}
			run := func(phase string, more ...string) {
				for i, j := range jobs {
					args := append([]string{
						"--name", fmt.Sprint("job", i), "--directory", m.Dir, "--ioengine", j.engine, "--rw", j.pattern, "--direct", j.direct,
						"--size", sized("3M", "256M"), "--bs", sized("16k", "4k,64k"), "--verify", "crc32c", "--verify_fatal", "1", "--randseed", fmt.Sprint(i + 1),
						"--iodepth", "8", "--numjobs", "1", "--thread", "--fallocate", []string{"none", "posix"}[i%2], "--end_fsync", fmt.Sprint(i & 1),
						"--verify_state_save", "0", "--group_reporting",
					}, more...)
					out, err := suiteRun(t, filepath.Dir(m.Store), sized(2*time.Minute, 20*time.Minute), program, args...)
					if err != nil {
						t.Errorf("%s: %s %s: %v\n%s", phase, j.engine, j.pattern, err, tail(out, 30))
					}
				}
			}
			run("written and verified")
			m.sync()
			_, _ = m.CLI("evict", m.Dir)
			run("verified after eviction", "--verify_only")
			m.sync()
			_, _ = m.CLI("evict", m.Dir)
			run("written again, over packed files", "--overwrite", "1")
			m.remount()
			run("verified after a remount", "--verify_only")
		})
	}
}
