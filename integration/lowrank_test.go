package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestMergedAdapters: a model into which an adapter was merged takes little beside the one that it was tuned from, wherever that is, and whatever becomes of
// it: after a compaction, when the base is removed, without the index, after a start.
func TestMergedAdapters(t *testing.T) {
	t.Parallel()
	m := newMount(t, "--hot-size", "0")
	torch := startSession(t, "adapters.py", "1")
	const base = "runs/base/1/model.safetensors"
	names := []string{base, "runs/tuned/1/model.safetensors", "runs/tuned/2/model.safetensors", "elsewhere/merged.safetensors", "elsewhere/other.pt"}
	sums := map[string]string{}
	for i, name := range names {
		dir := filepath.Dir(m.path(name))
		m.must(os.MkdirAll(dir, 0o755))
		if i == 1 {
			m.must(os.WriteFile(filepath.Join(dir, "lineage.json"), []byte(`{"parent": "runs/base/1"}`), 0o644))
		}
		before := m.taken()
		sums[name] = torch.tell(fmt.Sprint(i, " ", m.path(name)))
		m.sync()
		fi, err := os.Stat(m.path(name))
		m.must(err)
		took := m.taken() - before
		t.Logf("%s: %d of %d bytes", name, took, fi.Size())
		if i > 0 && took > fi.Size()/16 { // as a difference alone, two fifths
			t.Errorf("%s takes %d bytes of %d", name, took, fi.Size())
		}
	}
	check := func() {
		t.Helper()
		m.sameSums(sums)
		m.cli("check", "--read-data", m.Dir)
	}
	check()
	m.cli("compact", m.Dir)
	m.cli("prune", "--grace", "0", m.Dir)
	check()
	before := m.taken()
	m.must(os.RemoveAll(filepath.Dir(m.path(base))))
	delete(sums, base)
	m.cli("prune", "--grace", "0", m.Dir)
	check()
	if now := m.taken(); now > before+64<<10 || now < before/2 { // what is left is stored against it
		t.Errorf("%d bytes, %d without the base", before, now)
	}
	m.must(m.Stop())
	m.cli("repair", "index", m.Store)
	m.cli("repair", "segments", m.Store)
	m.must(m.Start())
	check()
	m.kill9()
	m.remount()
	m.cli("prune", "--grace", "0", m.Dir)
	check()
	for _, name := range names[1:] {
		m.must(os.Remove(m.path(name)))
	}
	m.cli("prune", "--grace", "0", m.Dir)
	if now := m.taken(); now > mib {
		t.Errorf("%d bytes are left", now)
	}
}
