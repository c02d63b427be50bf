package volume

import (
	"context"
	"strings"
	"testing"
)

// What is counted as not published yet is of this machine: folders of others that appeared just
// now are not named.
func TestOthersDoNotWait(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b", func(o *Options) { o.Publish = true })
	for _, p := range []string{"runs/x/1/f", "runs/x/2/f", "runs/y/1/f"} {
		a.put(p, []byte(p))
	}
	a.published("")
	b.fetched()
	if !b.exists("runs/x/1") || !b.exists("runs/y") {
		t.Fatal("nothing appeared")
	}
	b.put("runs/own/1/f", []byte("own"))
	b.sharing.get().TouchedAll()
	var waiting []string
	b.eventually("what was saved just now is named", func() bool {
		waiting = nil
		for _, w := range b.sharing.status(context.Background()).Waiting {
			waiting = append(waiting, w.Path)
		}
		return strings.Contains(strings.Join(waiting, " "), "runs/own")
	})
	for _, p := range waiting {
		if !strings.HasPrefix(p, "runs/own") {
			t.Errorf("%s waits", p)
		}
	}
}
