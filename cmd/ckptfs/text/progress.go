package text

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"ckptfs/fs/control"
)

// Progress shows a long operation on a terminal, and what it is doing. done clears it away.
func Progress(to io.Writer, doing func() string) (update func(control.Progress), done func()) {
	var bar *progressbar.ProgressBar
	update = func(p control.Progress) {
		total := max(p.TotalBytes, 1)
		if bar == nil {
			bar = progressbar.NewOptions64(total,
				progressbar.OptionSetWriter(to),
				progressbar.OptionShowBytes(true),
				progressbar.OptionShowCount(),
				progressbar.OptionUseIECUnits(true),
				progressbar.OptionSetWidth(24),
				progressbar.OptionSetPredictTime(true),
				progressbar.OptionThrottle(100*time.Millisecond),
				progressbar.OptionClearOnFinish(),
			)
		}
		if bar.GetMax64() != total {
			bar.ChangeMax64(total)
		}
		bar.Describe(fmt.Sprintf("%s, file %d of %d", doing(), min(p.DoneFiles+1, p.TotalFiles),
			p.TotalFiles))
		// A bar that reached its end never moves again, and the total may still grow.
		_ = bar.Set64(min(p.DoneBytes, total-1))
	}
	return update, func() {
		if bar != nil {
			_ = bar.Finish()
		}
	}
}
