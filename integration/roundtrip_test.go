package integration

import (
	"os"
	"path/filepath"
	"testing"
)

// saved are the files of saveAll, and where.
var saved = []string{"runs/a/1/model.pt", "runs/a/1/weights.safetensors", "runs/a/1/nested.pt", "other/plain.bin"}

// saveAll lets real programs write real checkpoints, and returns the digests of what the same programs write to a
// plain folder: the mount has to hold the very same bytes.
func saveAll(t *testing.T, m *mount) map[string]string {
	t.Helper()
	plain := t.TempDir()
	for _, dir := range []string{m.Dir, plain} {
		for _, f := range saved {
			m.must(os.MkdirAll(filepath.Join(dir, filepath.Dir(f)), 0o755))
		}
		runPython(t, "save.py", "zoo", "1", filepath.Join(dir, saved[0]), filepath.Join(dir, saved[1]))
		runPython(t, "save.py", "nested", "2", filepath.Join(dir, saved[2]))
		runPython(t, "save.py", "plain", "3", filepath.Join(dir, saved[3]))
	}
	sums := map[string]string{}
	reference := &mount{Daemon: m.Daemon, t: t}
	for _, f := range saved {
		b, err := os.ReadFile(filepath.Join(plain, f))
		m.must(err)
		if f != saved[1] { // two metadata keys are written in random order by save_file
			m.want(f, b)
		}
		sums[f] = reference.sum(f)
	}
	return sums
}

// checkAll reads everything back: bytes by digest, tensors through every loader.
func checkAll(t *testing.T, m *mount, sums map[string]string) {
	t.Helper()
	for _, f := range saved {
		if got := m.sum(f); got != sums[f] {
			t.Errorf("%s: sha256 %s, want %s", f, got, sums[f])
		}
	}
	runPython(t, "check.py", "zoo", "1", m.path(saved[0]), m.path(saved[1]))
	runPython(t, "check.py", "nested", "2", m.path(saved[2]))
	runPython(t, "check.py", "plain", "3", m.path(saved[3]))
}

func TestSaveEvictLoad(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		sums := saveAll(t, m)
		checkAll(t, m, sums)
		m.evict(saved...)
		checkAll(t, m, sums)
		m.evict(saved...) // reading may have hydrated some
		m.hydrate(saved...)
		checkAll(t, m, sums)
	})
}

// TestNothingKept: with --hot-size 0 a file is evicted as soon as it is packed, by nobody's hand.
func TestNothingKept(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		sums := saveAll(t, m)
		m.sync()
		for _, f := range saved {
			m.wantState(f, packed)
		}
		checkAll(t, m, sums)
		checkAll(t, m, sums)
	}, "--hot-size", "0")
}

func TestKilledAndMountedAgain(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		sums := saveAll(t, m)
		m.kill9() // with the packing under way
		m.must(m.Start())
		checkAll(t, m, sums)
		m.evict(saved...)
		m.kill9()
		m.must(m.Start())
		checkAll(t, m, sums)
	})
}

func TestIndexIsRebuilt(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		sums := saveAll(t, m)
		m.evict(saved...)
		before := m.stats()
		m.must(m.Stop())
		m.must(os.Remove(filepath.Join(m.Store, "index.db")))
		m.must(m.Start())
		checkAll(t, m, sums)
		after := m.stats()
		if after.Chunks != before.Chunks || after.UniqueBytes != before.UniqueBytes || after.Tensors != before.Tensors {
			t.Errorf("rebuilt: %+v\nbefore: %+v", after, before)
		}
		// What is stored already is found in the new index.
		runPython(t, "save.py", "plain", "3", m.path("again.pt"), m.path("again.safetensors"))
		m.sync()
		if grown := m.stats().UniqueBytes - after.UniqueBytes; grown > mib/2 {
			t.Errorf("saving the same tensors again stored %d bytes of chunks", grown)
		}
	})
}

// TestAttributesStay: packing, eviction and remount change nothing that stat shows.
func TestAttributesStay(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		m.write("a/x.bin", noise(1, 3*mib))
		m.sh("chmod 640 a/x.bin; touch -d '2020-01-02 03:04:05.678901234' a/x.bin; ln a/x.bin a/y.bin; ln -s x.bin a/z")
		const show = "stat -c '%i %s %a %u %g %h %y' a/x.bin a/y.bin; readlink a/z"
		want := m.sh(show)
		for _, step := range []func(){
			m.sync, func() { m.evict("a/x.bin") }, m.remount, func() { m.hydrate("a/x.bin") }, m.remount,
		} {
			step()
			if got := m.sh(show); got != want {
				t.Fatalf("stat shows\n%s\nand was\n%s", got, want)
			}
		}
	})
}
