package posix

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSuiteFio: fio reads back what it wrote, at once and after eviction, by several ways of writing and
// reading.
func TestSuiteFio(t *testing.T) {
	t.Parallel()
	program := suiteTool(t, "fio")
	for _, flags := range [][]string{nil, {"--no-passthrough"}} {
		t.Run(fmt.Sprint("flags", flags), func(t *testing.T) {
			t.Parallel()
			m := suiteMount(t, flags...)
			jobs := []struct{ engine, pattern, direct string }{
				{"psync", "write", "0"}, {"psync", "randwrite", "0"}, {"psync", "randrw", "1"},
				{"mmap", "write", "0"},
				{"mmap", "randwrite", "0"}, {"libaio", "randwrite", "1"}, {"libaio", "write", "0"},
				{"vsync", "randwrite", "0"},
				{"splice", "write", "0"}, {"io_uring", "randwrite", "0"}, {"pvsync2", "rw", "0"},
			}
			var config strings.Builder
			fmt.Fprintf(&config, "[global]\ndirectory=%s\nsize=%s\nbsrange=%s\nverify=crc32c\nverify_fatal=1\niodepth=8\nthread=1\nverify_state_save=0\n",
				m.Dir, sized("2M", "256M"), sized("16k-16k", "4k-64k"))
			for i, j := range jobs {
				fmt.Fprintf(&config, "[job%d]\nioengine=%s\nrw=%s\ndirect=%s\nrandseed=%d\nfallocate=%s\nend_fsync=%d\n",
					i, j.engine, j.pattern, j.direct, i+1, []string{"none", "posix"}[i%2], i&1)
				if full() {
					config.WriteString("stonewall\n") // one after the other
				}
			}
			file := filepath.Join(filepath.Dir(m.Store), "jobs.fio")
			m.Must(os.WriteFile(file, []byte(config.String()), 0o644))
			run := func(phase string, more ...string) {
				out, err := suiteRun(t, filepath.Dir(m.Store), sized(3*time.Minute, time.Hour), program,
					append(more, file)...)
				if err != nil {
					t.Errorf("%s: %v\n%s", phase, err, tail(out, 40))
				}
			}
			run("written and verified")
			m.Sync()
			_, _ = m.CLI("evict", m.Dir)
			run("verified after eviction", "--verify_only=1")
			m.Sync()
			_, _ = m.CLI("evict", m.Dir)
			run("written again, over packed files", "--overwrite=1")
			m.Remount()
			run("verified after a remount", "--verify_only=1")
		})
	}
}
