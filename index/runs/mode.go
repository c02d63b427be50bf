package runs

import (
	"slices"
	"strings"
)

// worse and better begin words of metrics of which less, or more, is good. What is worse decides: a
// reward_loss is a loss.
var (
	worse  = []string{"loss", "err", "mape", "nll", "perplexity", "ppl"}
	better = []string{"acc", "f1", "auc", "bleu", "rouge", "reward", "score", "quality", "precision",
		"recall", "r2", "map", "iou", "psnr", "ssim"}
)

// ModeOf guesses by a metric's name which end is good.
func ModeOf(metric string) Mode {
	between := func(r rune) bool { return strings.ContainsRune("/._- ", r) }
	words := strings.FieldsFunc(strings.ToLower(metric), between)
	has := func(begins []string) bool {
		return slices.ContainsFunc(words, func(w string) bool {
			return slices.ContainsFunc(begins, func(b string) bool { return strings.HasPrefix(w, b) })
		})
	}
	if has(better) && !has(worse) {
		return Max
	}
	return Min
}
