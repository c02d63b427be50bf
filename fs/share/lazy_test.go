package share

import (
	"context"
	"testing"
	"time"
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
