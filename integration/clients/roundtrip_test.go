package clients

import (
	"os"
	"path/filepath"
	"testing"

	"ckptfs/integration/mounttest"
)

// saved are the files of saveAll, and where.
var saved = []string{"runs/a/1/model.pt", "runs/a/1/weights.safetensors", "runs/a/1/nested.pt", "other/plain.bin"}

// saveAll lets real programs write real checkpoints, and returns the digests of what the same programs write
// to a plain folder: the mount has to hold the very same bytes.
func saveAll(t *testing.T, m *mounttest.Mount) map[string]string {
	t.Helper()
	plain := t.TempDir()
	for _, dir := range []string{m.Dir, plain} {
		for _, f := range saved {
			m.Must(os.MkdirAll(filepath.Join(dir, filepath.Dir(f)), 0o755))
		}
		mounttest.RunPython(t, "save.py", "zoo", "1", filepath.Join(dir, saved[0]),
			filepath.Join(dir, saved[1]))
		mounttest.RunPython(t, "save.py", "nested", "2", filepath.Join(dir, saved[2]))
		mounttest.RunPython(t, "save.py", "plain", "3", filepath.Join(dir, saved[3]))
	}
	sums := map[string]string{}
	reference := &mounttest.Mount{Daemon: m.Daemon, T: t}
	for _, f := range saved {
		b, err := os.ReadFile(filepath.Join(plain, f))
		m.Must(err)
		if f != saved[1] { // two metadata keys are written in random order by save_file
			m.Want(f, b)
		}
		sums[f] = reference.Sum(f)
	}
	return sums
}

// checkAll reads everything back: bytes by digest, tensors through every loader.
func checkAll(t *testing.T, m *mounttest.Mount, sums map[string]string) {
	t.Helper()
	for _, f := range saved {
		if got := m.Sum(f); got != sums[f] {
			t.Errorf("%s: sha256 %s, want %s", f, got, sums[f])
		}
	}
	mounttest.RunPython(t, "check.py", "zoo", "1", m.Path(saved[0]), m.Path(saved[1]))
	mounttest.RunPython(t, "check.py", "nested", "2", m.Path(saved[2]))
	mounttest.RunPython(t, "check.py", "plain", "3", m.Path(saved[3]))
}

func TestSaveEvictLoad(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		sums := saveAll(t, m)
		checkAll(t, m, sums)
		m.Evict(saved...)
		checkAll(t, m, sums)
		m.Evict(saved...) // reading may have hydrated some
		m.Hydrate(saved...)
		checkAll(t, m, sums)
	})
}

// TestNothingKept: with --hot-size 0 a file is evicted as soon as it is packed, by nobody's hand.
func TestNothingKept(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		sums := saveAll(t, m)
		m.Sync()
		for _, f := range saved {
			m.WantState(f, mounttest.Packed)
		}
		checkAll(t, m, sums)
		checkAll(t, m, sums)
	}, "--hot-size", "0")
}

func TestKilledAndMountedAgain(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		sums := saveAll(t, m)
		m.Kill() // with the packing under way
		m.Must(m.Start())
		checkAll(t, m, sums)
		m.Evict(saved...)
		m.Kill()
		m.Must(m.Start())
		checkAll(t, m, sums)
	})
}

func TestIndexIsRebuilt(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		sums := saveAll(t, m)
		m.Evict(saved...)
		before := m.Stats()
		m.Must(m.Stop())
		m.Must(os.Remove(filepath.Join(m.Store, "index.db")))
		m.Must(m.Start())
		checkAll(t, m, sums)
		after := m.Stats()
		if after.Chunks != before.Chunks || after.UniqueBytes != before.UniqueBytes ||
			after.Tensors != before.Tensors {
			t.Errorf("rebuilt: %+v\nbefore: %+v", after, before)
		}
		// What is stored already is found in the new index.
		mounttest.RunPython(t, "save.py", "plain", "3", m.Path("again.pt"), m.Path("again.safetensors"))
		m.Sync()
		if grown := m.Stats().UniqueBytes - after.UniqueBytes; grown > mib/2 {
			t.Errorf("saving the same tensors again stored %d bytes of chunks", grown)
		}
	})
}

// TestAttributesStay: packing, eviction and remount change nothing that stat shows.
func TestAttributesStay(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		m.Write("a/x.bin", mounttest.Noise(1, 3*mib))
		m.Sh("chmod 640 a/x.bin; touch -d '2020-01-02 03:04:05.678901234' a/x.bin; ln a/x.bin a/y.bin; ln -s x.bin a/z")
		const show = "stat -c '%i %s %a %u %g %h %y' a/x.bin a/y.bin; readlink a/z"
		want := m.Sh(show)
		for _, step := range []func(){
			m.Sync, func() { m.Evict("a/x.bin") }, m.Remount, func() { m.Hydrate("a/x.bin") }, m.Remount,
		} {
			step()
			if got := m.Sh(show); got != want {
				t.Fatalf("stat shows\n%s\nand was\n%s", got, want)
			}
		}
	})
}
