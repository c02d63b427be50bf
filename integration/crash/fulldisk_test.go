package crash

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
	"ckptfs/integration/recipe"

	"golang.org/x/sys/unix"
)

// TestCrashOnAFullDisk fills the disk that the store lies on. Writers get ENOSPC as they would from the disk
// itself; a daemon that is killed while it is full starts again; nothing that was written is lost; and once
// something is removed all goes on.
func TestCrashOnAFullDisk(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		t.Run(fstype, func(t *testing.T) {
			t.Parallel()
			modes := map[string][]string{"ext4": {"--hot-size", "0"}, "xfs": {"--hot-size", "1GiB",
				"--no-passthrough"}}
			d := mounttest.NewDisk(t, fstype, 320<<20)
			m := mounttest.PrepareOn(d, modes[fstype]...)
			// Most of the disk is somebody else's, so that it fills soon.
			other := filepath.Join(d.Dir, "other")
			m.Must(fill(other, free(t, d.Dir)-64<<20))
			m.Must(m.Start())
			want := map[string][]byte{}
			save := func(name string, r recipe.Recipe) {
				t.Helper()
				want[name] = r.Bytes()
				m.Write(name, want[name])
			}
			for i := range uint64(8) {
				save(fmt.Sprintf("runs/a/%d/model.pt", i), recipe.Recipe{Kind: recipe.Torch, Seed: 1, Step: i, Size: mib})
			}
			m.Sync()
			m.Run("evict", m.Dir)

			check := func(when string) {
				t.Helper()
				for name, data := range want {
					got, err := os.ReadFile(m.Path(name))
					if err != nil {
						t.Fatalf("%s: %v", when, err)
					}
					if !bytes.Equal(got, data) {
						t.Fatalf("%s: %s: %s", when, name, mounttest.Difference(data, got))
					}
				}
			}
			// fillUp writes until the disk is full, and keeps what write(2) said it took.
			fillUp := func(round string) {
				t.Helper()
				for i := 0; ; i++ {
					name, data := fmt.Sprintf("%s-%d", round, i), mounttest.Noise(uint64(i), 3*mib)
					n, err := writeUntilFull(m.Path(name), data)
					if n >= 0 {
						want[name] = data[:n]
					}
					if errors.Is(err, unix.ENOSPC) {
						break
					}
					m.Must(err)
					if i > 100 {
						t.Fatal("the disk does not fill")
					}
				}
			}
			fillUp("first")
			check("full")
			// Caches go when the disk is full, so that it may fit by now.
			if _, err := writeUntilFull(m.Path("one-more"), mounttest.Noise(1, 8*mib)); err != nil &&
				!errors.Is(err, unix.ENOSPC) {
				t.Errorf("another file on a full disk: %v, want ENOSPC", err)
			}
			_ = os.Remove(m.Path("one-more"))
			_, _ = m.RunOutcome("hydrate", m.Dir) // for which there is no room
			check("full, hydrated")
			// A packed file is opened for writing: it may be refused, and keeps its bytes then.
			const packedName = "runs/a/0/model.pt"
			if f, err := os.OpenFile(m.Path(packedName), os.O_RDWR, 0); err == nil {
				if _, err := f.WriteAt([]byte("new"), 100); err == nil {
					copy(want[packedName][100:], "new")
				} else if !errors.Is(err, unix.ENOSPC) {
					t.Errorf("a change on a full disk: %v", err)
				}
				m.Must(f.Close())
			} else if !errors.Is(err, unix.ENOSPC) {
				t.Errorf("opening a packed file for writing on a full disk: %v", err)
			}
			check("full, after a change")
			fillUp("second")

			m.Kill()
			m.Must(m.Start())
			check("killed while it was full")
			m.Must(os.Rename(m.Path("first-0"), m.Path("moved")))
			want["moved"] = want["first-0"]
			delete(want, "first-0")
			m.Kill()
			m.Must(m.Start())
			check("killed again")
			if mode := m.Status().Mode; fstype == "ext4" && mode != "passthrough" {
				t.Logf("mode on a full disk: %s: %s", mode, m.Status().ModeReason)
			}

			m.Must(os.Remove(other))
			m.Must(daemon.Until("a sync to succeed once there is room", func() bool {
				_, err := m.CLI("sync", m.Dir)
				return err == nil
			}))
			m.Run("evict", m.Dir)
			check("with room again")
			save("after", recipe.Recipe{Kind: recipe.Safetensors, Seed: 9, Size: 2 * mib})
			m.Remount()
			check("at last")
			m.Must(m.Stop())
			m.Must(d.Unmount())
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
