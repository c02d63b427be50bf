package models

import (
	"ckptfs/cas"
	"ckptfs/cas/locks"
	"ckptfs/index/graph"
)

// graphCache holds graphs that were read lately, by their records: one search asks again and again about
// descendants of the same models. They are never changed.
type graphCache struct {
	mu    locks.Mutex[leafLock]
	m     map[cas.Hash]*graph.Graph
	bytes int
}

const maxCachedGraphs = 4 << 20 // bytes

func (c *graphCache) get(h cas.Hash) *graph.Graph {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m[h]
}

func (c *graphCache) put(h cas.Hash, g *graph.Graph, record int) {
	size := record // about what a graph takes
	for i := range g.Vertices {
		v := &g.Vertices[i]
		size += 128 + 16*len(v.Inputs)
		for j := range v.Params {
			size += 96 + 8*len(v.Params[j].Shape)
		}
	}
	if size > maxCachedGraphs/8 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes += size; c.m == nil || c.bytes > maxCachedGraphs {
		c.m, c.bytes = map[cas.Hash]*graph.Graph{}, size
	}
	c.m[h] = g
}
