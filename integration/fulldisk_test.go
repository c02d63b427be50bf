package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"ckptfs/integration/daemon"
	"ckptfs/integration/recipe"

	"golang.org/x/sys/unix"
)

// TestCrashOnAFullDisk fills the disk that the store lies on. Writers get ENOSPC as they would from the disk itself; a daemon
// that is killed while it is full starts again; nothing that was written is lost; and once something is removed all goes
// on.
func TestCrashOnAFullDisk(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		t.Run(fstype, func(t *testing.T) {
			t.Parallel()
			modes := map[string][]string{"ext4": {"--hot-size", "0"}, "xfs": {"--hot-size", "1GiB", "--no-passthrough"}}
			d := newDisk(t, fstype, 320<<20)
			m := prepareOn(d, modes[fstype]...)
			// Most of the disk is somebody else's, so that it fills soon.
			other := filepath.Join(d.dir, "other")
			m.must(fill(other, free(t, d.dir)-64<<20))
			m.must(m.Start())
			want := map[string][]byte{}
			save := func(name string, r recipe.Recipe) {
				t.Helper()
				want[name] = r.Bytes()
				m.write(name, want[name])
			}
			for i := range uint64(8) {
				save(fmt.Sprintf("runs/a/%d/model.pt", i), recipe.Recipe{Kind: recipe.Torch, Seed: 1, Step: i, Size: mib})
			}
			m.sync()
			m.cli("evict", m.Dir)

			check := func(when string) {
				t.Helper()
				for name, data := range want {
					got, err := os.ReadFile(m.path(name))
					if err != nil {
						t.Fatalf("%s: %v", when, err)
					}
					if !bytes.Equal(got, data) {
						t.Fatalf("%s: %s: %s", when, name, difference(data, got))
					}
				}
			}
			// fillUp writes until the disk is full, and keeps what write(2) said it took.
			fillUp := func(round string) {
				t.Helper()
				for i := 0; ; i++ {
					name, data := fmt.Sprintf("%s-%d", round, i), noise(uint64(i), 3*mib)
					n, err := writeUntilFull(m.path(name), data)
					if n >= 0 {
						want[name] = data[:n]
					}
					if errors.Is(err, unix.ENOSPC) {
						break
					}
					m.must(err)
					if i > 100 {
						t.Fatal("the disk does not fill")
					}
				}
			}
			fillUp("first")
			check("full")
			// Caches go when the disk is full, so that it may fit by now.
			if _, err := writeUntilFull(m.path("one-more"), noise(1, 8*mib)); err != nil && !errors.Is(err, unix.ENOSPC) {
				t.Errorf("another file on a full disk: %v, want ENOSPC", err)
			}
			_ = os.Remove(m.path("one-more"))
			_, _ = m.cliOutcome("hydrate", m.Dir) // for which there is no room
			check("full, hydrated")
			// A packed file is opened for writing: it may be refused, and keeps its bytes then.
			const packedName = "runs/a/0/model.pt"
			if f, err := os.OpenFile(m.path(packedName), os.O_RDWR, 0); err == nil {
				if _, err := f.WriteAt([]byte("new"), 100); err == nil {
					copy(want[packedName][100:], "new")
				} else if !errors.Is(err, unix.ENOSPC) {
					t.Errorf("a change on a full disk: %v", err)
				}
				m.must(f.Close())
			} else if !errors.Is(err, unix.ENOSPC) {
				t.Errorf("opening a packed file for writing on a full disk: %v", err)
			}
			check("full, after a change")
			fillUp("second")

			m.kill9()
			m.must(m.Start())
			check("killed while it was full")
			m.must(os.Rename(m.path("first-0"), m.path("moved")))
			want["moved"] = want["first-0"]
			delete(want, "first-0")
			m.kill9()
			m.must(m.Start())
			check("killed again")
			if mode := m.status().Mode; fstype == "ext4" && mode != "passthrough" {
				t.Logf("mode on a full disk: %s: %s", mode, m.status().ModeReason)
			}

			m.must(os.Remove(other))
			m.must(daemon.Until("a sync to succeed once there is room", func() bool {
				_, err := m.CLI("sync", m.Dir)
				return err == nil
			}))
			m.cli("evict", m.Dir)
			check("with room again")
			save("after", recipe.Recipe{Kind: recipe.Safetensors, Seed: 9, Size: 2 * mib})
			m.remount()
			check("at last")
			m.must(m.Stop())
			m.must(d.unmount())
		})
	}
}

// writeUntilFull makes a file, and returns how many bytes write(2) took; -1 if there is none.
func writeUntilFull(path string, data []byte) (int, error) {
	f, err := os.Create(path)
	if err != nil {
		return -1, err
	}
	n, err := f.Write(data)
	return n, errors.Join(err, f.Close())
}

func free(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// fill takes n bytes of a disk.
func fill(path string, n int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, n), f.Close())
}
