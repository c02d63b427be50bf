package content

import (
	"os"
	"testing"
)

// A target is what a thread opens next to a packed file, in a program that copies.
func TestCopiers(t *testing.T) {
	c := newCopiers()
	me := uint32(os.Getpid())
	if c.source(me); c.target(me) {
		t.Error("a program that is not known to copy")
	}
	c.learn(me)
	if c.target(me) {
		t.Error("a target without a source")
	}
	c.source(me)
	if c.target(me + 1) {
		t.Error("another thread's")
	}
	if !c.target(me) {
		t.Error("not a target")
	}
	if c.target(me) {
		t.Error("a second target after one source")
	}
	c.source(0)
	if len(c.sources) > 0 {
		t.Error("the kernel itself is remembered")
	}
}
