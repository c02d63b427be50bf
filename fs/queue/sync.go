package volume

import (
	"context"
	"errors"
	"time"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
)

// packAll packs everything that waits, and what was put off, and returns when nothing does.
func (p *packer) packAll(ctx context.Context, report func(control.Progress)) error {
	defer p.Throttle.Wait()()
	p.retryAll()

	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cond.Broadcast()
	})
	defer stop()
	start := p.snapshot()
	p.mu.Lock()
	for (len(p.queue) > 0 || len(p.busy) > 0) && ctx.Err() == nil && !p.stopping {
		if report != nil {
			pr := p.progressLocked(start)
			p.mu.Unlock()
			report(pr)
			p.mu.Lock()
			if len(p.queue) == 0 && len(p.busy) == 0 {
				break
			}
		}
		p.cond.Wait()
	}
	pr := p.progressLocked(start)
	p.mu.Unlock()
	if report != nil {
		report(pr)
	}
	return ctx.Err()
}

// syncPublished makes durable what was packed or found to stay plain since the last time. A record that a power cut
// takes back costs nothing but packing the file once more, so nobody waits for this but who asks.
func (p *packer) syncPublished(syncTree, syncNames func() error) error {
	p.mu.Lock()
	files, all, any := p.plain, p.morePlain, p.published || p.morePlain || len(p.plain) > 0
	p.plain, p.morePlain, p.published = map[*content.File]bool{}, false, false
	p.mu.Unlock()
	var errs []error
	for f := range files {
		if !all && !f.Dead() {
			errs = append(errs, f.Sync())
		}
		f.Unpin()
	}
	switch {
	case all:
		errs = append(errs, syncTree())
	case any:
		errs = append(errs, syncNames())
	}
	return errors.Join(errs...)
}

func (p *packer) snapshot() progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// progressLocked is what was done since start. Sizes of what waits are not known yet: files count.
func (p *packer) progressLocked(start progress) control.Progress {
	done := p.done.files - start.files
	return control.Progress{
		DoneBytes: p.done.bytes - start.bytes,
		DoneFiles: done, TotalFiles: done + len(p.queue) + len(p.busy),
	}
}

// failures calls f, under a lock, with each file that is put off; err is nil of one that is mapped for writing.
func (p *packer) failures(f func(file *content.File, err error, since time.Time, attempts int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for file, d := range p.delayed {
		f(file, d.err, d.since, d.attempts)
	}
}
