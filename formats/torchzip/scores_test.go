package torchzip

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"testing"

	"ckptfs/formats"
)

// What Lightning's own callbacks say: the score of this checkpoint and not the best one's; none of a callback
// that watches nothing, or whose score is no scalar, and none of those that do not judge checkpoints.
func TestScores(t *testing.T) {
	for name, want := range map[string]map[string]float64{
		"lightning.ckpt": {"val_loss": 0.3125, "val/acc": 7}, "flat.pt": nil, "no_tensors.pt": nil,
		"module.pt": nil,
	} {
		p, err := os.ReadFile("../testdata/torch/" + name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Scores(bytes.NewReader(p), int64(len(p)))
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
	}
	script, err := os.ReadFile("../testdata/torch/script.pt")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range [][]byte{script, []byte("no zip")} {
		if _, err := Scores(bytes.NewReader(p), int64(len(p))); !errors.Is(err, formats.ErrNotFormat) {
			t.Errorf("of %.6q: %v", p, err)
		}
	}
}

// A file cut off anywhere, or with any byte changed, is an error or has scores; it is never more.
func TestScoresOfDamage(t *testing.T) {
	whole, err := os.ReadFile("../testdata/torch/lightning.ckpt")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(whole); i += 3 {
		_, _ = Scores(bytes.NewReader(whole[:i]), int64(i))
		p := bytes.Clone(whole)
		p[i] ^= 0xff
		_, _ = Scores(bytes.NewReader(p), int64(len(p)))
	}
}
