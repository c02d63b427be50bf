package pack

import (
	"slices"
	"sync/atomic"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/fs/recipes"
)

// cut walks the plan and hands batches of chunks to the workers.
func (j *job) cut(p *plan, l *formats.Layout) error {
	c := &cutter{job: j}
	defer c.drop()
	if err := c.skeleton(p); err != nil {
		return err
	}
	var late []*region
	err := searching(func() (err error) {
		c.sketches(p)
		late, err = c.relate(p, l)
		return err
	})
	if err != nil {
		return err
	}
	for i := range p.regions {
		r := &p.regions[i]
		var err error
		switch {
		case r.master != nil:
		case r.small:
		case r.Kind == formats.Data:
			err = c.onGrid(r)
		case r.Kind == formats.Blob:
			err = c.byContent(r)
		}
		if err != nil {
			return err
		}
	}
	if err := c.flush(); err != nil || len(late) == 0 {
		return err
	}
	c.running.Wait()
	if err := c.ctx.Err(); err != nil {
		return err
	}
	for _, r := range late {
		if !r.computed() && !r.goesOn() && r.master.master == nil {
			for _, o := range r.master.objects {
				rel := r.relatives()
				rel.masters = append(rel.masters, o.list()...)
			}
		}
		if err := c.onGrid(r); err != nil {
			return err
		}
	}
	return c.flush()
}

// relate finds out what the chunks of data may be stored with the help of, and which regions have to wait for
// others.
func (c *cutter) relate(p *plan, l *formats.Layout) (late []*region, err error) {
	half := slices.ContainsFunc(p.regions, func(r region) bool { return codec.MayBeRounded(r.hint()) })
	for i := range p.regions {
		if r := &p.regions[i]; half && r.tensor != nil && !r.small {
			c.masters.add(master{t: r.tensor, r: &r.Region, own: r})
		}
	}
	file := c.reader(l)
	seeker := c.seeker(file, c.size, cas.Hash{})
	moved := c.newAverages(p, c.beside)
	var unexplained []*region
	for i := range p.regions {
		r := &p.regions[i]
		if r.Kind != formats.Data || r.small {
			continue
		}
		if prev := c.origins[i].chunks(); prev != nil {
			c.comeAfter(r.relatives(), prev, c.origins[i].doubted)
		}
		m, err := c.masters.of(r.tensor, &r.Region,
			func() ([]byte, error) { return c.read(&r.Region, int(min(r.Len, probe))) },
			func(m *master, n int) ([]byte, error) {
				if m.own != nil {
					return c.read(m.r, n)
				}
				return m.of.begin(m.r, n), nil
			})
		switch {
		case err != nil:
			return nil, err
		case m == nil || m.of != nil && !c.areBases(m.of.grid(m.r)):
			plan, err := c.recipeOf(r.tensor, &r.Region, file)
			if err != nil {
				return nil, err
			}
			if plan != nil {
				r.relatives().recipe = plan
				if with := p.first(file, plan.Waits()); with != nil {
					r.master = with
					late = append(late, r)
				}
				continue
			}
			mixed, err := c.mixer.of(i)
			if err != nil {
				return nil, err
			}
			if mixed != nil {
				r.relatives().recipe = mixed
				continue
			}
			average, with, err := moved.of(r, c.origins[i])
			if err != nil {
				return nil, err
			}
			if average != nil {
				r.relatives().recipe = average
				if with != nil {
					with.keep, r.master = true, with
					late = append(late, r)
				}
				continue
			}
			far, err := seeker.far(r.tensor, &r.Region, c.origins[i])
			if err != nil {
				return nil, err
			}
			if r.rel == nil || far {
				unexplained = append(unexplained, r)
			}
			if r.rel != nil {
				r.low = lowRankOf(r.tensor, &r.Region, r.rel, func(k int64) ([]byte, error) {
					return c.chunkOf(&r.Region, k)
				})
			}
		case m.own != nil:
			m.own.keep, r.master = true, m.own
			late = append(late, r)
		default:
			r.relatives().masters = m.of.grid(m.r)
		}
	}
	return late, seeker.regions(unexplained)
}

// read reads the first n bytes of a region.
func (j *job) read(r *formats.Region, n int) ([]byte, error) {
	p := make([]byte, n)
	return p, readFull(j.r, p, r.Off)
}

// cutter fills one batch at a time.
type cutter struct {
	*job
	b *batch
}

// onGrid cuts a data region.
func (c *cutter) onGrid(r *region) error {
	r.odds = c.trials.chancesOf(c.series, &r.Region, r.tensor)
	step := stepOf(r.tensor, &r.Region)
	for i := int64(0); i*step < r.Len; i++ {
		p, err := c.take(r, r.Off+i*step, int(min(step, r.Len-i*step)), r.rel.of(i))
		if err != nil {
			return err
		}
		p.low, p.k = r.low, i
	}
	return c.end(r.objects)
}

// stepOf is how many bytes a chunk of a region has whose first tensor is t.
func stepOf(t *formats.Tensor, r *formats.Region) int64 {
	if t == nil || !fills(t, r) {
		return cas.ChunkSize
	}
	return recipes.Step(t)
}

// take makes the next n bytes of r, which are at off, a chunk that is related to others. The batch only says
// where they are; a worker reads them.
func (c *cutter) take(r *region, off int64, n int, rel cas.Related) (p *piece, err error) {
	if b := c.b; b != nil && (b.full(off-b.off+int64(n)) || off-b.end() > smallBlob) {
		if err := c.flush(); err != nil {
			return nil, err
		}
	}
	if c.b == nil {
		c.b = newBatch(off)
	}
	if r.objects, err = c.room(r, n); err != nil {
		return nil, err
	}
	return c.b.add(last(r.objects), int(off-c.b.off), n, rel, r.odds), nil
}

func last(o []*object) *object { return o[len(o)-1] }

// room sees to it that n more bytes belong to the last of r's objects.
func (c *cutter) room(r *region, n int) ([]*object, error) {
	if len(r.objects) > 0 && !last(r.objects).full(n, c.object) {
		return r.objects, nil
	}
	if err := c.end(r.objects); err != nil {
		return nil, err
	}
	return append(r.objects, &object{of: r, open: 1}), nil
}

// end says that the last of objects, if any, is complete. The worker that finds that nothing of it is left to
// hash names it.
func (c *cutter) end(objects []*object) error {
	if len(objects) > 0 && atomic.AddInt64(&last(objects).open, -1) == 0 {
		return c.name(last(objects))
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
