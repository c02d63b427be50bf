package volume

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

func TestNumberedCheckpoints(t *testing.T) {
	for names, want := range map[string]string{
		"step_10.pt step_9.pt last.pt notes10.txt":                           "step_10.pt step_9.pt",
		"epoch=1-val_loss=0.31.ckpt epoch=1-val_loss=0.31-v1.ckpt last.ckpt": "epoch=1-val_loss=0.31.ckpt epoch=1-val_loss=0.31-v1.ckpt",
		"model_1.pt optim_1.pt model_2.pt optim_2.pt":                        "",
		"model-00001-of-00002.safetensors model-00002-of-00002.safetensors":  "",
		"pytorch_model-00001-of-00002.bin 7.safetensors":                     "7.safetensors",
		"model.pt optimizer.pt weights.h5":                                   "",
		"m1.pt epoch=1.ckpt":                                                 "epoch=1.ckpt",
		"1.pt 1.safetensors":                                                 "",
		"":                                                                   "",
	} {
		var files []DirEntry
		for _, name := range strings.Fields(names) {
			files = append(files, DirEntry{Name: name})
		}
		var got []string
		for _, e := range numberedCheckpoints(files) {
			got = append(got, e.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q", names, got)
		}
	}
}

// Checkpoints that are files of the run's own directory are its steps, with metrics, parents and links, until there are directories with such.
func TestFlatSteps(t *testing.T) {
	lightning, err := os.ReadFile("../../formats/testdata/torch/lightning.ckpt")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.mkdir("runs/lit/lightning_logs")
	r.write("runs/lit/lightning_logs/hparams.yaml", []byte("lr: 1"))
	r.write("runs/lit/epoch=9.ckpt", lightning)
	r.write("runs/lit/epoch=10.ckpt", lightning)
	r.setMetric("runs/lit/epoch=10.ckpt", "val_loss", "0.25")
	r.write("runs/lit/last.ckpt", lightning)
	r.mkdir("runs/loop")
	r.write("runs/loop/step_1.safetensors", modelFile(t, "ABCD"))
	r.write("runs/loop/step_2.safetensors", modelFile(t, "ABCE"))
	r.sync()
	steps := func(run string) (out []string) {
		t.Helper()
		l, err := r.Log(context.Background(), run)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range l.Steps {
			if s.State != control.StepComplete || s.Files != 1 || s.LogicalBytes == 0 || s.Problem != "" {
				t.Errorf("%+v", s)
			}
			out = append(out, s.Step)
		}
		return out
	}
	if got := steps("runs/lit"); !slices.Equal(got, []string{"epoch=9.ckpt", "epoch=10.ckpt", "lightning_logs"}) {
		t.Errorf("%q", got)
	}
	if got := r.best("runs/lit", "val_loss", "max"); got != "epoch=9.ckpt" {
		t.Error(got)
	}
	if to, err := bestRun("lit").target(r.Volume, "val_loss.min"); to != "../../../runs/lit/epoch=10.ckpt" || err != nil {
		t.Error(to, err)
	}
	if got := steps("runs/loop"); !slices.Equal(got, []string{"step_1.safetensors", "step_2.safetensors"}) {
		t.Errorf("%q", got)
	}
	r.wantChain("runs/loop/step_2.safetensors", "loop/step_2.safetensors previous step 1; loop/step_1.safetensors none 3")

	// A parent that the file declares, as people say it: from the folder that it is in.
	r.write("runs/loop/step_3.safetensors", modelFile(t, "ABCE"))
	n := r.find("runs/loop/step_3.safetensors")
	if err := r.SetXattr(n, parentXattr, []byte("./step_1.safetensors"), 0); err != nil {
		t.Fatal(err)
	}
	r.forget(n)
	r.sync()
	r.wantChain("runs/loop/step_3.safetensors", "loop/step_3.safetensors declared 1; loop/step_1.safetensors none 3")

	if got := r.parents("runs/loop/step_3.safetensors"); !slices.Equal(got, []string{"runs/loop/step_1.safetensors"}) {
		t.Errorf("it is not stored against the parent that it declares, but %q", got)
	}

	h := r.open("runs/loop/step_4.safetensors", unix.O_WRONLY|unix.O_CREAT)
	r.writeAt(h, []byte("half"), 0)
	l, err := r.Runs(context.Background())
	if err != nil || len(l.Runs) != 2 || l.Runs[1].Steps != 4 || l.Runs[1].Writing != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	r.release(h)

	r.unlink("runs/loop/step_1.safetensors")
	r.wantChain("runs/loop/step_3.safetensors", "loop/step_3.safetensors declared 1; loop/step_1.safetensors none 3†")
	r.mkdir("runs/loop/5")
	r.write("runs/loop/5/m.safetensors", modelFile(t, "ABCE"))
	if got := steps("runs/loop"); !slices.Equal(got, []string{"5"}) {
		t.Errorf("%q", got)
	}
}
