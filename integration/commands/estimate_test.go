package commands

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ckptfs/integration/mounttest"
)

// estimated is what `estimate --json` prints.
type estimated struct {
	Complete bool  `json:"complete"`
	Bytes    int64 `json:"bytes"`
	Stored   int64 `json:"stored_bytes"`
	Low      int64 `json:"low_bytes"`
	High     int64 `json:"high_bytes"`
	Read     int64 `json:"read_bytes"`
	Left     int   `json:"left_files"`
	Formats  []struct {
		Name   string `json:"name"`
		Bytes  int64  `json:"bytes"`
		Stored int64  `json:"stored_bytes"`
	} `json:"formats"`
	Groups []struct {
		Name   string `json:"name"`
		Models int    `json:"models"`
	} `json:"groups"`
}

// TestEstimate: families of models, copied into a mount, take what was estimated: to within 10 points of
// their size by samples, and 3 if everything was read.
func TestEstimate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	models := filepath.Join(dir, "models")
	mounttest.RunPython(t, "families.py", models, "512")
	m := mounttest.Prepare(t, dir)
	var first, full estimated
	m.JSON(&first, "estimate", "--json", models)
	m.JSON(&full, "estimate", "--json", "--full", models)
	if !full.Complete || first.Bytes != full.Bytes || full.Left != 0 || first.Read == 0 {
		t.Errorf("%+v, %+v", first, full)
	}
	names, err := os.ReadDir(dir)
	m.Must(err)
	for _, n := range names {
		if n.Name() == "store" {
			t.Error("estimate made a store")
		}
	}
	m.Must(m.Start())
	m.Sh("cp -a " + models + "/. .")
	m.Sync()
	m.Run("compact", m.Dir) // what was packed before its base came was stored alone until then
	var s struct {
		Stored int64 `json:"stored_bytes"`
		Dead   int64 `json:"dead_bytes"`
	}
	m.JSON(&s, "stats", "--json", m.Dir)
	takes := s.Stored - s.Dead
	for _, f := range full.Formats {
		if f.Name == "plain" {
			takes += f.Stored
		}
	}
	points := func(n int64) float64 { return 100 * float64(n) / float64(full.Bytes) }
	t.Logf("of %d bytes a store takes %.2f %%, samples say %.2f (%.2f to %.2f), everything %.2f", full.Bytes,
		points(takes), points(first.Stored), points(first.Low), points(first.High), points(full.Stored))
	if d := math.Abs(points(first.Stored - takes)); d > 10 {
		t.Errorf("samples are off by %.2f points", d)
	}
	if d := math.Abs(points(full.Stored - takes)); d > 3 {
		t.Errorf("a full estimate is off by %.2f points", d)
	}
	if len(full.Groups) == 0 || full.Groups[0].Models < 3 {
		t.Errorf("%+v", full.Groups)
	}
	for _, p := range []string{m.Dir, m.Store, m.Path("precision")} {
		said, code := m.RunFails("estimate", p)
		if code != 1 {
			t.Errorf("estimate %s: exit code %d", p, code)
		}
		mounttest.WantSaid(t, said, "in a store already")
	}
	said, code := m.RunFails("estimate", dir) // which has the store and its mount
	if code != 7 {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// TestAdoptFamilies: families of models that are adopted take what was estimated, and no compaction makes
// them smaller, though what half precision was rounded from is the youngest file.
func TestAdoptFamilies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	models := filepath.Join(dir, "models")
	mounttest.RunPython(t, "families.py", models, "512")
	m := mounttest.Prepare(t, dir)
	now := time.Now()
	m.Must(os.Chtimes(filepath.Join(models, "precision", "single.safetensors"), now, now))
	var e estimated
	m.JSON(&e, "estimate", "--json", "--full", models)
	plain := int64(0)
	for _, f := range e.Formats {
		if f.Name == "plain" {
			plain += f.Stored
		}
	}
	m.Must(m.Start())
	m.Run("adopt", models, "--into", m.Path("in"))
	m.Sync()
	takes := func() float64 {
		t.Helper()
		var s struct {
			Stored int64 `json:"stored_bytes"`
			Dead   int64 `json:"dead_bytes"`
		}
		m.JSON(&s, "stats", "--json", m.Dir)
		return 100 * float64(s.Stored-s.Dead+plain) / float64(e.Bytes)
	}
	said, adopted := 100*float64(e.Stored)/float64(e.Bytes), takes()
	m.Run("compact", m.Dir)
	compacted := takes()
	t.Logf("of %d bytes the store takes %.2f %%, %.2f after a compaction; everything says %.2f", e.Bytes, adopted,
		compacted, said)
	if math.Abs(adopted-said) > 3 || adopted-compacted > 3 {
		t.Error("files were packed in another order than was estimated")
	}
}

// TestEstimateTemporary: an estimate says where its temporary files lie when they find no place or no room.
func TestEstimateTemporary(t *testing.T) {
	t.Parallel()
	models := t.TempDir()
	if err := os.WriteFile(filepath.Join(models, "f"), mounttest.Noise(7, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(temporary string) string {
		t.Helper()
		return printed(t, nil, "env", "TMPDIR="+temporary, mounttest.Bin, "estimate", "--full", models)
	}
	gone := filepath.Join(models, "gone")
	mounttest.WantSaid(t, ask(gone), "TMPDIR is to name a folder for temporary files")
	full := mounttest.MountDisk(t, "tmpfs", 1)
	if err := os.WriteFile(filepath.Join(full, "f"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	mounttest.WantSaid(t, ask(full), "temporary files lie in "+full+": free room there")
}
