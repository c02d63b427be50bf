package pack

import (
	"io"
	"sync/atomic"

	"ckptfs/cas/chunk"
	"ckptfs/cas/codec"
	"ckptfs/formats"
)

// cut walks the plan and hands batches of chunks to the workers.
func (j *job) cut(p *plan) error {
	c := &cutter{job: j}
	defer c.drop()
	var err error
	if p.skeleton, err = c.byContent(&joined{r: j.r, rest: p.regions}, codec.Hint{}); err != nil {
		return err
	}
	for i := range p.regions {
		r := &p.regions[i]
		switch {
		case r.Kind == formats.Data:
			err = c.onGrid(r)
		case r.Kind == formats.Blob && !r.small:
			r.objects, err = c.byContent(&section{j.r, r.Off, r.Off + r.Len}, r.hint)
		}
		if err != nil {
			return err
		}
	}
	return c.flush()
}

// cutter fills one batch at a time.
type cutter struct {
	*job
	b *batch
}

// onGrid cuts a data region. The batch only says where the bytes are; a worker reads them.
func (c *cutter) onGrid(r *region) error {
	var o *object
	for i := range chunk.GridLen(r.Len) {
		off, n := chunk.GridSpan(r.Len, i)
		off += r.Off
		if b := c.b; b != nil && (b.full(off-b.off+int64(n)) || off-b.end() > smallBlob) {
			if err := c.flush(); err != nil {
				return err
			}
		}
		if c.b == nil {
			c.b = newBatch(off)
		}
		if o == nil || o.full(n) {
			if err := c.close(o); err != nil {
				return err
			}
			o = c.open(r.hint)
			r.objects = append(r.objects, o)
		}
		c.b.add(o, int(off-c.b.off), n)
	}
	return c.close(o)
}

// byContent cuts a stream, whose bytes it copies into batches of its own, and returns the objects.
func (c *cutter) byContent(stream io.Reader, hint codec.Hint) (objects []*object, err error) {
	if err := c.flush(); err != nil {
		return nil, err
	}
	cdc := chunk.NewCDC(stream)
	defer cdc.Close()
	var o *object
	for {
		p, err := cdc.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if c.b != nil && c.b.full(int64(c.b.n+len(p))) {
			if err := c.flush(); err != nil {
				return nil, err
			}
		}
		if c.b == nil {
			c.b = newBatch(0)
			c.b.held = true
		}
		if o == nil || o.full(len(p)) {
			if err := c.close(o); err != nil {
				return nil, err
			}
			o = c.open(hint)
			objects = append(objects, o)
		}
		at := c.b.n
		copy(c.b.buf[at:], p)
		c.b.add(o, at, len(p))
	}
	if err := c.close(o); err != nil {
		return nil, err
	}
	return objects, c.flush()
}

func (c *cutter) open(hint codec.Hint) *object { return &object{hint: hint, open: 1} }

// close says that the cutter adds no more to o, if any. Whoever finds that nothing is left to hash names it.
func (c *cutter) close(o *object) error {
	if o != nil && atomic.AddInt64(&o.open, -1) == 0 {
		return c.name(o)
	}
	return nil
}

// flush hands the batch, if there is one, to a worker; it waits until one is free.
func (c *cutter) flush() error {
	b := c.b
	if b == nil {
		return c.ctx.Err()
	}
	c.b = nil
	return c.start(b)
}

func (c *cutter) drop() {
	if c.b != nil {
		c.b.free()
	}
}
