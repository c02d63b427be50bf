package steps

import (
	"strings"
	"testing"

	"ckptfs/fs/tree"
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
		"1.weights.safetensors 2.weights.safetensors 3.pt":                   "1.weights.safetensors 2.weights.safetensors 3.pt",
		"1.weights.safetensors 1.pt 2.pt":                                    "1.pt 2.pt",
		"e1.weights.safetensors e2.weights.safetensors":                      "e1.weights.safetensors e2.weights.safetensors",
		"e1.weights.safetensors m2.pt":                                       "m2.pt",
		"e=1-s=9.weights.safetensors e=2-s=18.ckpt 7.pt":                     "e=1-s=9.weights.safetensors e=2-s=18.ckpt",
		"1.weights.safetensors 2.pt 2.safetensors":                           "",
		"": "",
	} {
		var files []tree.DirEntry
		for _, name := range strings.Fields(names) {
			files = append(files, tree.DirEntry{Name: name})
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
