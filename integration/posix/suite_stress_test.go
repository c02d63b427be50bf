package posix

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// stressors are stress-ng's that work on files. Left out: those that need what no FUSE has (binderfs, procfs,
// verity), those that are not about a filesystem though they are counted among them (eventfd, ioprio), and
// bind-mount, which mounts over /.
var stressors = []string{
	"access", "chattr", "chdir", "chmod", "chown", "copy-file", "dentry", "dir", "dirdeep", "dirmany",
	"dnotify", "dup",
	"fallocate", "fanotify", "fcntl", "fiemap", "file-ioctl", "filename", "flock", "fpunch", "fsize",
	"fstat", "getdent", "handle",
	"hdd", "inode-flags", "inotify", "iomix", "lease", "link", "locka", "lockf", "lockofd",
	"mknod", "mmap", "open",
	"readahead", "rename", "seek", "sendfile", "splice", "symlink", "sync-file", "touch", "utime", "xattr",
}

// TestSuiteStress: stress-ng's stressors of files succeed on the mount where they do on a plain folder. In
// short there are only some of them, others on each day.
func TestSuiteStress(t *testing.T) {
	t.Parallel()
	program := suiteTool(t, "stress-ng")
	m := suiteMount(t)
	plain := plainFolder(m)
	for i, s := range stressors {
		if !full() && i%6 != time.Now().YearDay()%6 {
			continue
		}
		run := func(dir string) (string, error) {
			return suiteRun(t, dir, 5*time.Minute, program, "--"+s, "2", "--timeout", sized("1s", "20s"),
				"--verify", "--temp-path", dir,
				"--hdd-bytes", "16m", "--fallocate-bytes", "16m", "--iomix-bytes", "16m", "--seek-size",
				"4m", "--metrics-brief", "--oomable")
		}
		out, err := run(m.Dir)
		if err == nil {
			continue
		}
		plainOut, plainErr := run(plain)
		if plainErr == nil {
			t.Errorf("%s: %v\n%s\non a plain folder:\n%s", s, err, tail(out, 30), tail(plainOut, 10))
		} else {
			t.Logf("%s fails on a plain folder too: %v", s, plainErr)
		}
	}
	m.Sync()
	entries, err := os.ReadDir(m.Dir)
	m.Must(err)
	if len(entries) > 0 {
		t.Log(fmt.Sprint("left behind: ", entries))
	}
}
