package tell

import (
	"context"
	"testing"

	"ckptfs/fs/content"
)

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
	told := New()
	told.put(telling{name: "f"})
	go told.Run(t.Context(), func() content.Kernel { return k })
	<-k.reached
	gaveUp, giveUp := context.WithCancel(t.Context())
	giveUp()
	told.Heard(gaveUp)

	ended := New()
	ended.Run(gaveUp, nil)
	ended.Heard(t.Context())
}
