package text

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"ckptfs/fs/control"
)

// Progress shows a long operation on a terminal, and what it is doing: the phase that it is in, or doing. A
// phase of which it is known how many bytes it has, or else how many files, is a bar with its rate and the
// time that is left. Another one counts, and tells its rate. done clears it away.
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
	files bool                     // it is one of files
	said  time.Time                // when a count was shown last; zero: none is
	began time.Time                // when the first count of the phase was
	from  control.Progress         // that count
}

func (l *progress) update(p control.Progress) {
	if p.Phase != l.phase {
		l.end()
		l.phase, l.began = p.Phase, time.Time{}
	}
	label := l.phase
	if label == "" {
		label = l.doing()
	}
	switch {
	case p.TotalBytes > 0:
		if p.TotalFiles > 0 {
			label += fmt.Sprintf(", file %d of %d", min(p.DoneFiles+1, p.TotalFiles), p.TotalFiles)
		}
		l.draw(label, p.DoneBytes, p.TotalBytes, false)
	case p.TotalFiles > 0:
		if p.DoneBytes > 0 {
			label += ", " + Bytes(p.DoneBytes)
		}
		l.draw(label, int64(p.DoneFiles), int64(p.TotalFiles), true)
	default:
		l.count(label, p)
	}
}

// draw shows a bar, of files or of bytes.
func (l *progress) draw(label string, done, total int64, files bool) {
	if l.bar != nil && l.files != files {
		l.end()
	}
	if l.bar == nil {
		l.end()
		l.files = files
		options := []progressbar.Option{
			progressbar.OptionSetWriter(l.to),
			progressbar.OptionSetDescription(label),
			progressbar.OptionShowCount(),
			progressbar.OptionSetWidth(24),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(often),
			progressbar.OptionClearOnFinish(),
		}
		if files {
			options = append(options, progressbar.OptionShowIts(), progressbar.OptionSetItsString("files"))
		} else {
			options = append(options, progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true))
		}
		l.bar = progressbar.NewOptions64(total, options...)
	}
	if l.bar.GetMax64() != total {
		l.bar.ChangeMax64(total)
	}
	// A bar that reached its end never moves again, and the total may still grow.
	_ = l.bar.Set64(min(done, total-1))
	l.bar.Describe(label)
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
	if l.began.IsZero() {
		l.began, l.from = l.said, p
	}
	if p.DoneFiles > 0 {
		label += ", " + Plural(int64(p.DoneFiles), "file") + " so far"
	}
	if p.DoneBytes > 0 {
		label += ", " + Bytes(p.DoneBytes)
	}
	fmt.Fprintf(l.to, "\r%s%s\x1b[K", label, rate(&l.from, &p, l.said.Sub(l.began)))
}

// rate says how quick a count is; "" as long as that is a guess.
func rate(from, to *control.Progress, in time.Duration) string {
	switch bytes, files := to.DoneBytes-from.DoneBytes, to.DoneFiles-from.DoneFiles; {
	case in < time.Second:
		return ""
	case bytes > 0:
		return ", " + Bytes(int64(float64(bytes)/in.Seconds())) + "/s"
	case files > 0:
		return ", " + Plural(int64(float64(files)/in.Seconds()), "file") + "/s"
	}
	return ""
}

// Waiting shows on a terminal that something takes long of which nothing else is known, and for how long it
// has: after a second, for what is quick needs no word. done clears it away.
func Waiting(to io.Writer, doing string) (done func()) {
	return waiting(to, doing, time.Second)
}

func waiting(to io.Writer, doing string, each time.Duration) (done func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(each)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-stop:
				if n > 1 {
					fmt.Fprint(to, "\r\x1b[K")
				}
				return
			case <-tick.C:
				fmt.Fprintf(to, "\r%s, %v so far\x1b[K", doing, time.Duration(n)*each)
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(stop)
		<-ended
	})
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
