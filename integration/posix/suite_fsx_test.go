package posix

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

const fsxConfig = `flen = %d
[opsize]
max = 65536
[weights]
close_open = %d
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 4
fsync = 0.2
fdatasync = 0.2
posix_fallocate = 1
punch_hole = 2
sendfile = 2
posix_fadvise = 1
copy_file_range = 2
`

// TestSuiteFsx: a file that fsx writes, maps, cuts, punches and copies about holds what fsx thinks it does,
// while it is packed, evicted and hydrated whenever it is closed for a moment.
func TestSuiteFsx(t *testing.T) {
	t.Parallel()
	program := suiteTool(t, "fsx")
	for _, flags := range [][]string{{"--hot-size", "1GiB"}, {"--no-passthrough"}} {
		t.Run(flags[0], func(t *testing.T) {
			t.Parallel()
			m := suiteMount(t, flags...)
			// In rounds, for the file is remounted between them, and one round goes on where the last one
			// ended but for the bytes: fsx begins with an empty file.
			total, round := sized(4000, 1_000_000), sized(2000, 50_000)
			for i := range total / round {
				dir := filepath.Join(filepath.Dir(m.Store), fmt.Sprint("artifacts", i))
				m.Must(os.Mkdir(dir, 0o755))
				config := filepath.Join(dir, "fsx.toml")
				// Small files are not packed; and to be packed a file has to be closed now and then.
				m.Must(os.WriteFile(config, fmt.Appendf(nil, fsxConfig, 512<<10, []int{1, 10}[i%2]), 0o644))
				seed := time.Now().UnixNano() & 0xffff_ffff
				if s, err := strconv.ParseInt(os.Getenv("CKPTFS_FUZZ_SEED"), 10, 64); err == nil {
					seed = s + int64(i)
				}
				stop := churn(m)
				out, err := suiteRun(t, dir, sized(3*time.Minute, 40*time.Minute), program,
					"-f", config, "-N", fmt.Sprint(round), "-S", fmt.Sprint(seed), "-P", dir,
					m.Path(fmt.Sprint("file", i)))
				stop()
				if err != nil {
					t.Fatalf("seed %d: %v\n%s", seed, err, tail(out, 60))
				}
				want := m.Sum(fmt.Sprint("file", i))
				m.Sync()
				_, _ = m.CLI("evict", m.Dir)
				m.Remount()
				if got := m.Sum(fmt.Sprint("file", i)); got != want {
					t.Fatalf("seed %d: after a remount the file has sum %s, before %s", seed, got, want)
				}
			}
		})
	}
}
