package names

import (
	"slices"

	"ckptfs/fs/content"
	"ckptfs/fs/handover"
)

// Crowd says when there are more nodes than there is memory for. The kernel has a reference to each that it
// was ever told of, until it needs the memory itself. table.mu guards it.
//
//	tell >= bound, if bound > 0
type Crowd struct {
	of    *table
	most  int // nodes where memory is short; 0: any number
	ample int // nodes where it is not; at least most
	bound int // one of these
	tell  int // as many are told of next
	told  chan struct{}
}

// Bound has Told tell when there are more than so many nodes. It is called before anything is looked up.
func (c *Crowd) Bound(most int) {
	c.most, c.ample = most, max(most, handover.MostNodes)
	c.bound, c.tell = most, most
}

// Short says whether memory is short. As long as it is not, there may be as many nodes as there is room for
// in what the next process is left. Until Short is called it is.
func (c *Crowd) Short(short bool) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.bound = c.ample
	if short || c.most == 0 {
		c.bound = c.most
	}
	c.tell = c.bound
	c.cameLocked(len(c.of.byID))
}

// Told tells that there are too many nodes, and again when there is an eighth more.
func (c *Crowd) Told() <-chan struct{} { return c.told }

// cameLocked notes that there are n nodes, one more than before.
func (c *Crowd) cameLocked(n int) {
	if c.bound == 0 || n <= c.tell {
		return
	}
	c.tell = n + c.bound/8
	select {
	case c.told <- struct{}{}:
	default:
	}
}

// wentLocked notes that there are n nodes, fewer than before.
func (c *Crowd) wentLocked(n int) {
	if n <= c.bound {
		c.tell = c.bound
	}
}

// Oldest are a quarter of the nodes that there may be, and those that are too many, for the kernel to forget:
// those that have been here for longest, and were not named before as long as there are others. What is in a
// folder comes before the folder, as a rule.
func (c *Crowd) Oldest() []content.NodeID {
	t := c.of
	t.mu.Lock()
	defer t.mu.Unlock()
	n := max(len(t.byID)-c.bound, 0) + c.bound/4
	ids := make([]content.NodeID, 0, len(t.byID))
	for id, node := range t.byID {
		if id != RootID && !node.named {
			ids = append(ids, id)
		}
	}
	if len(ids) <= n { // begin again
		for _, node := range t.byID {
			node.named = false
		}
	}
	slices.Sort(ids)
	ids = ids[:min(n, len(ids))]
	for _, id := range ids {
		t.byID[id].named = true
	}
	slices.Reverse(ids)
	return ids
}
