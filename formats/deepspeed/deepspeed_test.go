package deepspeed

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/pickle"
)

// files are those of a step in testdata, by name.
func files(t *testing.T, step string) map[string][]byte {
	t.Helper()
	all, err := filepath.Glob("../testdata/zero/" + step + "/*")
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	out := map[string][]byte{}
	for _, p := range all {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(p)] = b
	}
	return out
}

func parse(b []byte) (*File, error) { return Parse(bytes.NewReader(b), int64(len(b))) }

func TestParse(t *testing.T) {
	for step, want := range map[string]struct{ stage, ranks, frozen int }{
		"stage1": {1, 2, 0}, "stage2": {2, 3, 2}, "stage3": {3, 2, 2},
	} {
		for name, b := range files(t, step) {
			f, err := parse(b)
			if _, known := Rank(name); err != nil || !known || !IsPart(name) {
				t.Fatalf("%s: %v, %t", name, err, known)
			}
			o := f.Optimizer
			if o != nil && (o.Stage != want.stage || o.Ranks != want.ranks || len(o.Flat) == 0) {
				t.Errorf("%s/%s: %+v", step, name, o)
			}
			m := f.Model
			if m == nil {
				continue
			}
			if len(m.Groups) != 2 || len(m.Groups[0]) != 3 || len(m.Frozen) != want.frozen ||
				len(m.Buffers) != 3 {
				t.Errorf("%s/%s: %+v", step, name, m)
			}
			if p := m.Groups[0][0]; p.Name != "emb.weight" || p.Shape[0] != 11 || p.Shape[1] != 7 {
				t.Errorf("%s/%s: %+v", step, name, p)
			}
		}
	}
}

func TestRank(t *testing.T) {
	for name, want := range map[string]int{
		"mp_rank_00_model_states.pt":                     -1,
		"zero_pp_rank_12_mp_rank_00_model_states.pt":     12,
		"bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt": 3,
	} {
		if got, ok := Rank(name); !ok || got != want {
			t.Errorf("%s: %d, %t", name, got, ok)
		}
	}
	for _, name := range []string{"mp_rank_01_model_states.pt", "layer_00-model_states.pt", "mp_rank_00_optim_states.pt",
		"expert_0_mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_01_optim_states.pt",
		"zero_pp_rank_99999999999999999999_mp_rank_00_optim_states.pt"} {
		if got, ok := Rank(name); ok {
			t.Errorf("%s: %d", name, got)
		}
	}
}

// A file that is cut off or changed anywhere is refused, or says what its pickle says; it is never more.
func TestDamage(t *testing.T) {
	for _, step := range []string{"stage2", "stage3"} {
		for name, whole := range files(t, step) {
			for i := 0; i < len(whole); i += 7 {
				if f, err := parse(whole[:i]); err == nil {
					t.Errorf("%s: cut off at %d: %+v", name, i, f)
				}
				p := bytes.Clone(whole)
				p[i] ^= 0xff
				_, _ = parse(p)
			}
		}
	}
	if _, err := parse([]byte("PK")); !errors.Is(err, formats.ErrNotFormat) {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	for _, p := range []string{"\x80\x02}q\x00.", "\x80\x02}(X\x05\x00\x00\x00shapeccollections\nOrderedDict\n)Ru."} {
		f.Add([]byte(p))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		g, err := pickle.Parse(p, pickle.Limits{Nodes: 1 << 16, Pushes: 1 << 16, Marks: 100, Memo: 100})
		if err != nil {
			return
		}
		_, _ = params(g.Root())
		for _, v := range dict(g.Root()) {
			_, _ = size(v)
			_, _ = number(v)
		}
	})
}
