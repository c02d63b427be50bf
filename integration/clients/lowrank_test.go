package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"ckptfs/integration/mounttest"
)

// TestMergedAdapters: a model into which an adapter was merged takes little beside the one that it was tuned
// from, wherever that is, and whatever becomes of it: after a compaction, when the base is removed, without
// the index, after a start.
func TestMergedAdapters(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t, "--hot-size", "0")
	torch := mounttest.StartSession(t, "adapters.py", "1")
	const base = "runs/base/1/model.safetensors"
	names := []string{base, "runs/tuned/1/model.safetensors", "runs/tuned/2/model.safetensors", "elsewhere/merged.safetensors", "elsewhere/other.pt"}
	sums := map[string]string{}
	for i, name := range names {
		dir := filepath.Dir(m.Path(name))
		m.Must(os.MkdirAll(dir, 0o755))
		if i == 1 {
			m.Must(os.WriteFile(filepath.Join(dir, "lineage.json"), []byte(`{"parent": "runs/base/1"}`), 0o644))
		}
		before := m.Taken()
		sums[name] = torch.Tell(fmt.Sprint(i, " ", m.Path(name)))
		m.Sync()
		fi, err := os.Stat(m.Path(name))
		m.Must(err)
		took := m.Taken() - before
		t.Logf("%s: %d of %d bytes", name, took, fi.Size())
		if i > 0 && took > fi.Size()/16 { // as a difference alone, two fifths
			t.Errorf("%s takes %d bytes of %d", name, took, fi.Size())
		}
	}
	check := func() {
		t.Helper()
		m.SameSums(sums)
		m.Run("check", "--read-data", m.Dir)
	}
	check()
	m.Run("compact", m.Dir)
	m.Run("prune", "--grace", "0", m.Dir)
	check()
	before := m.Taken()
	m.Must(os.RemoveAll(filepath.Dir(m.Path(base))))
	delete(sums, base)
	m.Run("prune", "--grace", "0", m.Dir)
	check()
	if now := m.Taken(); now > before+64<<10 || now < before/2 { // what is left is stored against it
		t.Errorf("%d bytes, %d without the base", before, now)
	}
	m.Must(m.Stop())
	m.Run("repair", "index", m.Store)
	m.Run("repair", "segments", m.Store)
	m.Must(m.Start())
	check()
	m.Kill()
	m.Remount()
	m.Run("prune", "--grace", "0", m.Dir)
	check()
	for _, name := range names[1:] {
		m.Must(os.Remove(m.Path(name)))
	}
	m.Run("prune", "--grace", "0", m.Dir)
	if now := m.Taken(); now > mib {
		t.Errorf("%d bytes are left", now)
	}
}
