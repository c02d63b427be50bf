package text

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"ckptfs/fs/control"
)

// Progress shows a long operation on a terminal, and what it is doing: the phase that it is in, or doing. A
// phase of which it is known how many bytes it has is a bar, another one counts. done clears it away.
func Progress(to io.Writer, doing func() string) (update func(control.Progress), done func()) {
	p := &progress{to: to, doing: doing}
	return p.update, p.end
}

// often is how often the line changes, at most.
const often = 100 * time.Millisecond

// progress is the line of one operation.
type progress struct {
	to    io.Writer
	doing func() string
	phase string
	bar   *progressbar.ProgressBar // nil: none is shown
	said  time.Time                // when a count was shown last; zero: none is
}

func (l *progress) update(p control.Progress) {
	if p.Phase != l.phase {
		l.end()
		l.phase = p.Phase
	}
	label := l.phase
	if label == "" {
		label = l.doing()
	}
	if p.TotalFiles > 0 {
		label += fmt.Sprintf(", file %d of %d", min(p.DoneFiles+1, p.TotalFiles), p.TotalFiles)
	}
	if p.TotalBytes == 0 {
		l.count(label, p)
		return
	}
	if l.bar == nil {
		l.end()
		l.bar = progressbar.NewOptions64(p.TotalBytes,
			progressbar.OptionSetWriter(l.to),
			progressbar.OptionShowBytes(true),
			progressbar.OptionShowCount(),
			progressbar.OptionUseIECUnits(true),
			progressbar.OptionSetWidth(24),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(often),
			progressbar.OptionClearOnFinish(),
		)
	}
	if l.bar.GetMax64() != p.TotalBytes {
		l.bar.ChangeMax64(p.TotalBytes)
	}
	l.bar.Describe(label)
	// A bar that reached its end never moves again, and the total may still grow.
	_ = l.bar.Set64(min(p.DoneBytes, p.TotalBytes-1))
}

// count shows a phase that has no known end.
func (l *progress) count(label string, p control.Progress) {
	if l.bar != nil {
		l.end()
	}
	if time.Since(l.said) < often {
		return
	}
	l.said = time.Now()
	if p.TotalFiles == 0 && p.DoneFiles > 0 {
		label += ", " + Plural(int64(p.DoneFiles), "file") + " so far"
	}
	if p.DoneBytes > 0 {
		label += ", " + Bytes(p.DoneBytes)
	}
	fmt.Fprintf(l.to, "\r%s\x1b[K", label)
}

// end clears the line.
func (l *progress) end() {
	if l.bar != nil {
		_ = l.bar.Finish()
		l.bar = nil
	}
	if !l.said.IsZero() {
		fmt.Fprint(l.to, "\r\x1b[K")
		l.said = time.Time{}
	}
}
