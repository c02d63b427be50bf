package volume

import (
	"context"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/steps"
)

// Checkpoints that are files of the run's own directory are its steps, with metrics, parents and links, until
// there are directories with such.
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
	stepsOf := func(run string) (out []string) {
		t.Helper()
		l, err := r.Log(context.Background(), run, nil)
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
	want := []string{"epoch=9.ckpt", "epoch=10.ckpt", "lightning_logs"}
	if got := stepsOf("runs/lit"); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := r.best("runs/lit", "val_loss", "max"); got != "epoch=9.ckpt" {
		t.Error(got)
	}
	link := r.find(".ckptfs/best/lit/val_loss.min")
	defer r.forget(link)
	if to, err := r.Readlink(link); to != "../../../runs/lit/epoch=10.ckpt" || err != nil {
		t.Error(to, err)
	}
	if got := stepsOf("runs/loop"); !slices.Equal(got, []string{"step_1.safetensors", "step_2.safetensors"}) {
		t.Errorf("%q", got)
	}
	r.wantChain("runs/loop/step_2.safetensors", "loop/step_2.safetensors previous step 1; loop/step_1.safetensors none 3")

	// A parent that the file declares, as people say it: from the folder that it is in.
	r.write("runs/loop/step_3.safetensors", modelFile(t, "ABCE"))
	n := r.find("runs/loop/step_3.safetensors")
	if err := r.SetXattr(n, steps.ParentXattr, []byte("./step_1.safetensors"), 0); err != nil {
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
	if got := stepsOf("runs/loop"); !slices.Equal(got, []string{"5"}) {
		t.Errorf("%q", got)
	}
}
