package volume

import (
	"encoding/json"
	"testing"

	"ckptfs/fs/control"
	"ckptfs/index/graph"
)

func TestIndented(t *testing.T) {
	for _, v := range []any{
		nil, 1, "", "x", []int{}, map[string]int{}, []any{[]int{}, []any{map[string]any{}}},
		map[string]any{"a": []any{1, -2.5e-9, true, nil, `"\{[,:]}é<>&` + "\x00\n\\"}, `b"\\`: map[string]any{"": [][2]string{{"x", "y"}, {`\"`, `\`}}}},
		&control.MatchAnswer{GraphKind: "explicit", Match: &control.Match{Pairs: [][2]string{{"a", "b"}}, Tensors: []control.TransferTensor{}}},
	} {
		p, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := json.MarshalIndent(v, "", "  ")
		if got := indented(p); string(got) != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", p, got, want)
		}
	}
}

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
