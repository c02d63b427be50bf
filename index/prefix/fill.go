package prefix

import (
	"sync"
	"sync/atomic"

	"ckptfs/cas"
	"ckptfs/index/graph"
)

// Fill adds n models, which read reads by all processors at once, in no order; the outline may be r's. A
// model that read refuses, or that is there, is told to failed.
func (c *Catalogue) Fill(n int, read func(i int, r *graph.OutlineReader) (Model, *graph.Outline, error),
	failed func(i int, err error)) {
	type one struct {
		i    int
		m    Model
		kind graph.Kind
		keyring
		err error
	}
	type batch []one
	workers := cas.Processors
	free, full := make(chan batch, 4*workers), make(chan batch, 4*workers)
	for range cap(free) {
		free <- make(batch, 64)
	}
	var next atomic.Int64
	var readers sync.WaitGroup
	for range workers {
		readers.Go(func() {
			r := labelled{c: c}
			for b := range free {
				b = b[:cap(b)]
				from := int(next.Add(int64(len(b)))) - len(b)
				b = b[:max(0, min(len(b), n-from))]
				for k := range b {
					x := &b[k]
					var o *graph.Outline
					x.i = from + k
					if x.m, o, x.err = read(x.i, &r.reader); x.err == nil {
						x.kind = o.Kind
						r.keys(&x.keyring, o)
					}
				}
				full <- b
			}
		})
	}
	for done := 0; done < n; {
		b := <-full
		c.mu.Lock()
		for k := range b {
			x := &b[k]
			if x.err == nil {
				x.err = c.addLocked(x.m, x.kind, &x.keyring)
			}
		}
		c.mu.Unlock()
		for k := range b {
			if x := &b[k]; x.err != nil {
				failed(x.i, x.err)
			}
		}
		done += len(b)
		free <- b
	}
	close(free)
	go func() { // those that found nothing left to do
		for range full {
		}
	}()
	readers.Wait()
	close(full)
}

// labelled gives the layers that one reader numbers their labels.
type labelled struct {
	c      *Catalogue
	reader graph.OutlineReader
	labels []uint32 // by layer
	ids    []uint64
}

// keys sets k to the keys of a graph.
func (r *labelled) keys(k *keyring, o *graph.Outline) {
	if have := len(r.labels); have < len(r.reader.Layers) {
		r.c.mu.Lock()
		for i := range r.reader.Layers[have:] {
			v := &r.reader.Layers[have+i]
			n, _ := r.c.configs.find(v, true)
			r.labels, r.ids = append(r.labels, label(n, v)), append(r.ids, r.c.configs.all[n].id)
		}
		r.c.mu.Unlock()
	}
	k.ints.reset()
	for _, l := range o.Layer {
		k.ints.label = append(k.ints.label, r.labels[l])
	}
	k.ints.first = append(k.ints.first[:0], o.First...)
	k.ints.in = append(k.ints.in, o.In...)
	k.text = k.ints.append(k.text[:0])
	k.hash(&r.c.secret, func(v int) uint64 { return r.ids[o.Layer[v]] })
}
