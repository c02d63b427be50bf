package prefix

import (
	"runtime"
	"sync"
	"sync/atomic"

	"ckptfs/index/graph"
)

// Fill adds n models, which read reads by all processors at once, in no order; the graph may be r's. A model that read or Add refuses is told to failed.
func (c *Catalogue) Fill(n int, read func(i int, r *graph.Reader) (Model, *graph.Graph, error), failed func(i int, err error)) {
	type one struct {
		i   int
		m   Model
		g   *graph.Graph
		err error
		r   graph.Reader
	}
	free, full := make(chan *one, 256), make(chan *one, 256)
	for range cap(free) {
		free <- &one{}
	}
	var next atomic.Int64
	var readers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		readers.Go(func() {
			for x := range free {
				if x.i = int(next.Add(1) - 1); x.i >= n {
					return
				}
				x.m, x.g, x.err = read(x.i, &x.r)
				full <- x
			}
		})
	}
	for range n {
		x := <-full
		if x.err == nil {
			x.err = c.Add(x.m, x.g)
		}
		if x.err != nil {
			failed(x.i, x.err)
		}
		free <- x
	}
	close(free)
	readers.Wait()
}
