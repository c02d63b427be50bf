package models

import (
	"testing"

	"ckptfs/index/graph"
)

func TestGraphCache(t *testing.T) {
	var c graphCache
	for i := range 1000 {
		g := &graph.Graph{Vertices: make([]graph.Vertex, 1+i%500)}
		c.put([32]byte{byte(i), byte(i >> 8)}, g, 10)
		if got := c.get([32]byte{byte(i), byte(i >> 8)}); got != g || c.bytes > maxCachedGraphs {
			t.Fatalf("%d: %v, %d bytes", i, got == g, c.bytes)
		}
	}
	if len(c.m) == 1000 || len(c.m) < 2 {
		t.Errorf("%d graphs", len(c.m))
	}
	if c.put([32]byte{}, &graph.Graph{Vertices: make([]graph.Vertex, 1<<16)}, 10); c.bytes > maxCachedGraphs {
		t.Error("a large one is kept")
	}
}
