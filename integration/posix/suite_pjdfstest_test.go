package posix

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// pjdfstestConfig turns on everything that the program can look for on Linux.
const pjdfstestConfig = `[features]
posix_fallocate = {}
utimensat = {}
utime_now = {}
rename_ctime = {}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
`

var pjdfstestLine = regexp.MustCompile(`(?m)^(\S+::\S+)\s+(ok|FAILED|skipped)`)

// TestSuitePjdfstest: no case of pjdfstest fails on the mount that does not fail on a plain folder.
func TestSuitePjdfstest(t *testing.T) {
	t.Parallel()
	program := suiteTool(t, "pjdfstest")
	if os.Geteuid() != 0 {
		t.Skip("pjdfstest becomes other users: needs root")
	}
	for _, flags := range [][]string{{"--allow-other"}, {"--allow-other", "--no-passthrough"}} {
		t.Run(flags[len(flags)-1], func(t *testing.T) {
			t.Parallel()
			m := suiteMount(t, flags...)
			config := filepath.Join(filepath.Dir(m.Store), "pjdfstest.toml")
			m.Must(os.WriteFile(config, []byte(pjdfstestConfig), 0o644))
			run := func(dir string) map[string]string {
				args := []string{"-c", config, "-p", dir}
				if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
					other, err := os.MkdirTemp("/dev/shm", "ckptfs-pjdfstest-")
					m.Must(err)
					defer os.RemoveAll(other)
					args = append(args, "-s", other)
				}
				out, _ := suiteRun(t, "/", 5*time.Minute, program, args...) // it fails when a case does
				cases := map[string]string{}
				for _, line := range pjdfstestLine.FindAllStringSubmatch(out, -1) {
					cases[line[1]] = line[2]
				}
				if len(cases) < 300 {
					t.Fatalf("pjdfstest ran %d cases only:\n%s", len(cases), tail(out, 40))
				}
				return cases
			}
			want, got := run(plainFolder(m)), run(m.Dir)
			count := map[string]int{}
			for name, result := range got {
				count[result]++
				if result == "FAILED" && want[name] != "FAILED" {
					t.Errorf("%s fails on the mount, and is %s on a plain folder", name, want[name])
				}
			}
			for name, result := range want {
				count["plain "+result]++
				if got[name] == "" {
					t.Errorf("%s was not run on the mount", name)
				}
			}
			t.Log(count)
		})
	}
}
