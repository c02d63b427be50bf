package share

import (
	"context"
	"testing"
	"time"

	"ckptfs/fs/content"
)

// What one fetch found is noted when the next one finds that nothing has changed since.
func TestFetchesNoteInTurn(t *testing.T) {
	z := newLazy(nil)
	first, second := make(chan struct{}), make(chan struct{})
	go z.fetch(t.Context(), func(context.Context) (bool, error) {
		close(first)
		select { // the next one does not come by
		case <-second:
		case <-time.After(20 * time.Millisecond):
		}
		return true, nil
	})
	<-first
	_, _ = z.fetch(t.Context(), func(context.Context) (bool, error) {
		close(second)
		z.mu.Lock()
		defer z.mu.Unlock()
		if z.fetched != 2 {
			t.Error("the fetch before has not noted what it found")
		}
		return false, nil
	})
}

// stuck is a kernel that takes nothing until it is let go.
type stuck struct {
	content.Kernel
	reached, letGo chan struct{}
}

func (k *stuck) InvalidateName(content.NodeID, string) {
	close(k.reached)
	<-k.letGo
}

// Who waits until the kernel heard does not wait for a kernel that takes nothing, once it gives up or the
// mount ends.
func TestHeardGivesUp(t *testing.T) {
	k := &stuck{reached: make(chan struct{}), letGo: make(chan struct{})}
	defer close(k.letGo)
	told := newTellings()
	told.put(telling{name: "f"})
	go told.run(t.Context(), func() content.Kernel { return k })
	<-k.reached
	gaveUp, giveUp := context.WithCancel(t.Context())
	giveUp()
	told.heard(gaveUp)

	ended := newTellings()
	ended.run(gaveUp, nil)
	ended.heard(t.Context())
}
