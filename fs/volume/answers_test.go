package volume

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// layersGraph is a sidecar of an Input and two layers of n equal nodes: each of the second hangs at one of
// the first, shift further. Two of them that differ in shift take a long search.
func layersGraph(n, shift int) []byte {
	var b strings.Builder
	b.WriteString(`{"v":1,"nodes":[{"id":"x","op":"Input"}`)
	for i := range n {
		fmt.Fprintf(&b, `,{"id":"0_%d","op":"A","cfg":{},"in":["x"]}`, i)
	}
	for i := range n {
		fmt.Fprintf(&b, `,{"id":"1_%d","op":"B","cfg":{},"in":["0_%d"]}`, i, (i*i+shift)%n)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

// TestAnswersEnd: what somebody's sidecar makes slow to answer ends soon, and at once when its caller goes;
// nobody else waits for it.
func TestAnswersEnd(t *testing.T) {
	r := newRig(t)
	for i, step := range []string{"adv/1", "adv/2"} {
		r.mkdir("runs/" + step)
		r.write("runs/"+step+"/arch.json", layersGraph(20_000, i))
		r.save(step, "A")
	}
	r.sync()
	r.saveGraph("a/1", "xyz")
	r.sync()
	if got := r.matched("xy"); got != "a/1 2" {
		t.Fatalf("matched %q", got)
	}
	ended := make(chan error)
	start := time.Now()
	go func() {
		_, _, err := r.models.Match(t.Context(), control.MatchOptions{Like: "runs/adv/1"})
		ended <- err
	}()
	if got := r.matched("xyq"); got != "a/1 2" {
		t.Errorf("beside it: matched %q", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	n := r.find(".ckptfs/lcp/adv/2")
	if h, err := r.OpenBy(ctx, r.me, n, unix.O_RDONLY); !errors.Is(err, context.Canceled) {
		t.Errorf("opened: %v %v", h, err)
	}
}

// goingContext is of a caller who goes when it is asked for the nth time whether he is still there.
type goingContext struct {
	context.Context
	n, asked  int
	meanwhile func(asked int) // nil: nothing
}

func (c *goingContext) Err() error {
	c.asked++
	if c.meanwhile != nil {
		c.meanwhile(c.asked)
	}
	if c.asked < c.n {
		return nil
	}
	return context.Canceled
}

// TestAnswerAsksForItsCaller: a search looks now and then whether its caller is still there, and ends if not.
// Others are answered meanwhile.
func TestAnswerAsksForItsCaller(t *testing.T) {
	r := newRig(t)
	for i, step := range []string{"adv/1", "adv/2"} {
		r.mkdir("runs/" + step)
		r.write("runs/"+step+"/arch.json", layersGraph(20_000, i))
		r.save(step, "A")
	}
	r.sync()
	like := control.MatchOptions{Like: "runs/adv/1"}
	other := control.MatchOptions{Graph: chainGraph("xy", true)}
	there := &goingContext{Context: t.Context(), n: math.MaxInt, meanwhile: func(asked int) {
		if asked != 15 { // in the midst of the search
			return
		}
		answered := make(chan error, 1)
		go func() { // which does not wait for it
			_, n, err := r.models.Match(t.Context(), other)
			if n != nil {
				n.Unpin()
			}
			answered <- err
		}()
		select {
		case err := <-answered:
			if err != nil {
				t.Errorf("beside it: %v", err)
			}
		case <-time.After(patience):
			t.Error("another question waits for it")
		}
	}}
	if _, n, err := r.models.Match(there, like); err != nil {
		t.Fatal(err)
	} else if n != nil {
		n.Unpin()
	}
	if there.asked < 20 {
		t.Fatalf("asked %d times for its caller", there.asked)
	}
	going := &goingContext{Context: t.Context(), n: 10}
	if _, _, err := r.models.Match(going, like); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if going.asked > 20 {
		t.Errorf("asked %d times for a caller who has gone", going.asked)
	}
}
