package runs

import "testing"

// A metric's name says which end is good, or nothing.
func TestModeOf(t *testing.T) {
	for want, metrics := range map[string][]string{
		"min": {"loss", "val/loss", "perplexity", "reward_loss", "mape", "r2_err", "valLoss",
			"train/loss_step", "eval_WER", "val.mae", "crossEntropy",
			"error_rate", "train/loss_epoch", "bpb"},
		"max": {"acc", "val_accuracy", "eval/F1", "reward", "val/mAP50", "valAcc", "bleu", "f1-weighted",
			"mIoU", "top-5-acc", "recall@10"},
		"": {"lr", "learning_rate", "epoch", "step", "grad_norm", "samples/s", "tokens_per_second",
			"backward_ms", "train_runtime", "loss_scale", "gradient_accumulation_steps", "", "x", "epoch_time"},
	} {
		for _, m := range metrics {
			got := ""
			if mode, known := ModeOf(m); known {
				got = mode.String()
			}
			if got != want {
				t.Errorf("%s: %q, not %q", m, got, want)
			}
		}
	}
}
