package posix

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// toolRuns are shell commands that leave the same tree behind, and say the same, on the mount as in a plain
// folder. $src is a folder outside of both.
var toolRuns = []string{
	`mkdir -p runs/a/1 runs/a/2 d/e`,
	`cp "$src"/big "$src"/small runs/a/1/`,
	`cp -a runs/a/1 runs/a/1copy`,
	`cp --reflink=auto runs/a/1/big d/big && cmp d/big "$src"/big`,
	`cp --sparse=always "$src"/holes d/holes && cmp d/holes "$src"/holes`,
	`dd if="$src"/big of=d/dd bs=123457 status=none`,
	`dd if=/dev/zero of=d/dd bs=1000 seek=7 count=3 conv=notrunc status=none`,
	`dd if="$src"/big of=d/direct bs=1M count=3 oflag=dsync status=none`,
	`mv runs/a/1 runs/a/9`,
	`mv runs/a/9/big d/moved`,
	`mv "$src"/big2 d/`,
	`mv -n d/moved d/dd; ls d`,
	`ln d/dd d/hard && ln -s ../dd d/e/soft && readlink d/e/soft`,
	`truncate -s 3333333 d/dd`,
	`truncate -s 0 runs/a/1copy/small && echo text >>runs/a/1copy/small`,
	`touch -d 2001-02-03T04:05:06.789 d/moved && stat -c %y d/moved`,
	`chmod 600 d/dd && chmod 755 d/e`,
	`chmod 444 d/holes && (echo x >>d/holes) 2>/dev/null || true`,
	`mkfifo d/fifo && test -p d/fifo`,
	`sed -i s/text/more/ runs/a/1copy/small`,
	`tar cf d/all.tar -C runs . && tar tf d/all.tar | sort`,
	`mkdir untar && tar xf d/all.tar -C untar`,
	`sha256sum d/dd d/moved | sha256sum -c - >/dev/null 2>&1 || sha256sum d/dd`,
	`rm d/all.tar && rmdir d/none 2>/dev/null || true`,
	`find . -type f -size +1M | sort`,
	`mkdir deep && cd deep && for i in 1 2 3 4 5 6 7 8 9; do mkdir dirdirdirdirdirdirdirdirdirdirdirdirdirdirdirdirdirdirdirdir && cd dir*; done && echo bottom >x`,
	`rm -r untar deep`,
}

// listing tells all there is below a folder: names, types, modes, sizes, links, bytes.
const listing = `find . -mindepth 1 -printf '%P %y %m %s %n %l\n' | sed -E '/ d /s/ [0-9]+ [0-9]+ / - - /' | sort
find . -type f -print0 | sort -z | xargs -0 -r sha256sum`

// TestTools runs the same commands on the mount and in a plain folder and compares what they say and leave
// behind.
func TestTools(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		plain := t.TempDir()
		shell := func(dir, src, command string) string {
			t.Helper()
			cmd := exec.Command("bash", "-c", "umask 022; "+command)
			cmd.Dir, cmd.Env = dir, append(cmd.Environ(), "src="+src, "LC_ALL=C", "TZ=UTC")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s in %s: %v\n%s", command, dir, err, out)
			}
			return strings.ReplaceAll(string(out), src, "SRC")
		}
		sources := [2]string{t.TempDir(), t.TempDir()}
		for _, src := range sources {
			s := &mounttest.Mount{Daemon: nil, T: t}
			writeAt(s, src, "big", mounttest.Noise(1, 5*mib+123))
			writeAt(s, src, "big2", mounttest.Noise(2, 3*mib))
			writeAt(s, src, "small", []byte("small\n"))
			writeAt(s, src, "holes", append(make([]byte, 2*mib), mounttest.Noise(3, mib)...))
		}
		for i, command := range toolRuns {
			got, want := shell(m.Dir, sources[0], command), shell(plain, sources[1], command)
			if got != want {
				t.Errorf("%s says\n%s\non a plain folder\n%s", command, got, want)
			}
			if i%5 == 4 { // packed in between, so that later commands meet packed files
				m.Sync()
				m.RunOutcome("evict", m.Dir)
			}
			if command == toolRuns[len(toolRuns)-1] || i%5 == 4 {
				if got, want := shell(m.Dir, "x", listing), shell(plain, "x", listing); got != want {
					t.Fatalf("after %s there is\n%s\nin a plain folder\n%s", command, got, want)
				}
			}
		}
		m.Remount()
		if got, want := shell(m.Dir, "x", listing), shell(plain, "x", listing); got != want {
			t.Errorf("mounted again there is\n%s\nin a plain folder\n%s", got, want)
		}
		shell(m.Dir, "x", "rm -rf -- *")
		m.WantNames("")
	}, "--no-views")
}

// TestRsync: an rsync into the mount and out of it is exact, and a second one finds nothing to do.
func TestRsync(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("rsync"); err != nil {
		mounttest.Missing(t, "no rsync here (apt-get install rsync)")
	}
	m := mounttest.New(t)
	src, back := t.TempDir(), t.TempDir()
	writeAt(m, src, "a", mounttest.Noise(1, 2*mib))
	writeAt(m, src, "b", []byte("b"))
	m.Sh("rsync -a " + src + "/ d")
	m.Sync()
	m.RunOutcome("evict", m.Dir)
	if out := m.Sh("rsync -ai " + src + "/ d"); out != "" {
		t.Errorf("a second rsync does something: %s", out)
	}
	m.Sh("rsync -a d/ " + back + " && diff -r " + src + " " + back)
}

// writeAt makes a file outside of the mount.
func writeAt(m *mounttest.Mount, dir, name string, data []byte) {
	m.T.Helper()
	m.Must(os.WriteFile(filepath.Join(dir, name), data, 0o644))
}
