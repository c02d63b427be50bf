package segment

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Parts hands records on that come one by one, some at a time to each of several goroutines. A segment may
// hold a million small ones: they are never all there.
type Parts struct {
	ctx   context.Context
	group *errgroup.Group
	do    func(ctx context.Context, recs []Record) error
	part  []Record
}

// partRecords are those that a goroutine gets.
const partRecords = 256

// NewParts makes Parts of so many goroutines. The first error of do, or of ctx, ends them.
func NewParts(ctx context.Context, goroutines int, do func(context.Context, []Record) error) *Parts {
	p := &Parts{do: do}
	p.group, p.ctx = errgroup.WithContext(ctx)
	p.group.SetLimit(goroutines)
	return p
}

// Add hands on a copy of a record.
func (p *Parts) Add(r *Record) error {
	if p.part == nil {
		p.part = make([]Record, 0, partRecords)
	}
	if p.part = append(p.part, *r); len(p.part) == partRecords {
		p.hand()
	}
	return p.ctx.Err()
}

func (p *Parts) hand() {
	part := p.part
	p.part = nil
	p.group.Go(func() error { return p.do(p.ctx, part) })
}

// Stopped reports whether an error ended them.
func (p *Parts) Stopped() bool { return p.ctx.Err() != nil }

// Wait waits until all is done.
func (p *Parts) Wait() error {
	p.hand()
	return p.group.Wait()
}
