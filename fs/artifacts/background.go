package artifacts

import (
	"context"
	"errors"
	"io"
	"time"

	"ckptfs/cas"
	"ckptfs/formats/canonical"
)

// identifyTurn is how long it works before it looks whether anything else wants to.
const identifyTurn = 10 * time.Millisecond

// errOvertaken: the file is another now, or a command that asked was faster.
var errOvertaken = errors.New("overtaken")

// Background computes the ids of packed files before a command asks for them, so that they are found by them:
// one file after the other, on one processor, while nothing is packed or waits to be, and while packing might
// use a processor. Which manifests have an id and which have none is in the index; so a file is read once,
// whatever becomes of the daemon. It is for one goroutine.
type Background struct {
	a     *Artifacts
	rests func(ctx context.Context) error
	turn  func(ctx context.Context) (over func(), err error)
	step  func(what string) error
}

// Background computes ids. rests waits until nothing is packed, turn for a processor, step is a hook of
// tests.
func (a *Artifacts) Background(rests func(context.Context) error, turn func(context.Context) (func(), error),
	step func(string) error) *Background {
	return &Background{a: a, rests: rests, turn: turn, step: step}
}

// Wants reports whether what there is to know of the tensors of a manifest is not known.
func (a *Artifacts) Wants(manifest cas.Hash) bool {
	known, err := a.o.Table.Known(manifest)
	return err == nil && !known
}

// Identify computes the id of a file, unless there is no need any more.
func (b *Background) Identify(ctx context.Context, f File) error {
	before, err := f.State()
	if err != nil {
		return err
	}
	h := before.Manifest
	if h.IsZero() || before.Damaged != nil || before.Written || before.Gone {
		return nil
	}
	if known, err := b.a.o.Table.Known(h); known || err != nil {
		return err
	}
	if b.step("identify") != nil {
		return nil
	}
	var r *paced
	_, err = b.a.compute(ctx, f, 1, func(gen uint64) io.ReaderAt {
		r = &paced{b: b, ctx: ctx, f: f, gen: gen}
		return r
	})
	if r != nil {
		r.pause()
	}
	switch {
	case err == nil, errors.Is(err, errOvertaken), errors.Is(err, ErrBeingWritten):
	case errors.Is(err, canonical.ErrNoID):
		now, serr := f.State()
		if serr != nil || now.Gen != before.Gen || now.Manifest != h {
			return nil // it is another file that has none
		}
		return b.a.o.Table.PutNone(h)
	default:
		return err
	}
	return nil
}

// paced reads a file while there is time for it.
type paced struct {
	b     *Background
	ctx   context.Context
	f     File
	gen   uint64
	over  func() // ends its turn; nil: it has none
	until time.Time
}

func (p *paced) ReadAt(b []byte, off int64) (int, error) {
	if p.over != nil && !p.b.a.o.Now().Before(p.until) {
		p.pause()
	}
	if p.over == nil {
		if err := p.b.rests(p.ctx); err != nil {
			return 0, err
		}
		over, err := p.b.turn(p.ctx)
		if err != nil {
			return 0, err
		}
		p.over, p.until = over, p.b.a.o.Now().Add(identifyTurn)
	}
	st, err := p.f.State()
	if k, ok := p.b.a.known.Peek(p.f.Key()); err != nil || st.Gen != p.gen || st.Written || st.Gone ||
		ok && k.gen == st.Gen {
		return 0, errOvertaken
	}
	return p.f.ReadAt(b, off)
}

// pause ends its turn.
func (p *paced) pause() {
	if p.over != nil {
		p.over()
		p.over = nil
	}
}
