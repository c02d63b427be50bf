package ui

import (
	"net/url"
	"strings"
	"testing"

	"ckptfs/fs/control"
)

// A name of a million levels makes a tree of few, and its page has a URL that a browser takes.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("<b>a.", 1<<18)
	top := tree([]control.Tensor{{Name: long + "x"}, {Name: long + "y"}, {Name: "short.w"}}, "")
	linked(top.Kids, "runs/a/1/f")
	nodes := 0
	var walk func(all []*node, depth int)
	walk = func(all []*node, depth int) {
		if depth > mostLevels {
			t.Fatalf("a level %d", depth)
		}
		for _, n := range all {
			nodes++
			if len(n.URL) > 3*mostTitle {
				t.Errorf("a URL of %d bytes", len(n.URL))
			}
			walk(n.Kids, depth+1)
		}
	}
	walk(top.Kids, 0)
	if nodes > 2*mostLevels {
		t.Errorf("%d nodes", nodes)
	}
	u, err := url.Parse(tensorURL("f", long))
	if err != nil {
		t.Fatal(err)
	}
	if is := asked(u.Query()); !is(long) || is(long+"x") || is("") {
		t.Error("the URL of a long name asks for another")
	}
}
