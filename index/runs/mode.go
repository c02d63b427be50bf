package runs

import (
	"regexp"
	"slices"
	"strings"
)

// worse and better begin words of metrics of which less, or more, is good. What is worse decides: a
// reward_loss is a loss. Of names with a word of neither nothing is known: a loss_scale is no loss.
var (
	worse = []string{"loss", "err", "mape", "nll", "perplexity", "ppl", "mae", "mse", "rmse", "wer", "fid",
		"bpb", "bpc", "xent", "crossentropy"}
	better = []string{"acc", "f1", "auc", "bleu", "rouge", "reward", "score", "quality", "precision",
		"recall", "r2", "map", "iou", "psnr", "ssim", "auroc", "miou", "dice", "ndcg", "mrr", "mcc", "chrf",
		"meteor"}
	neither = []string{"scale", "coef", "threshold", "accum", "time", "second", "fidelity"}
)

var (
	between = regexp.MustCompile(`[/._\- @:]+`)
	hump    = regexp.MustCompile(`([a-z0-9])([A-Z])`)
)

// ModeOf says by a metric's name which end is good: of a val_loss the least, of an accuracy the greatest. Not
// known: the name, such as lr, epoch or grad_norm, does not say it.
func ModeOf(metric string) (m Mode, known bool) {
	humps := hump.ReplaceAllString(metric, "$1 $2") // valLoss
	words := between.Split(strings.ToLower(metric+" "+humps), -1)
	has := func(begins []string) bool {
		return slices.ContainsFunc(words, func(w string) bool {
			return slices.ContainsFunc(begins, func(b string) bool { return strings.HasPrefix(w, b) })
		})
	}
	switch {
	case has(neither):
		return Min, false
	case has(worse):
		return Min, true
	case has(better):
		return Max, true
	}
	return Min, false
}
