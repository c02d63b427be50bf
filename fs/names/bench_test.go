package names

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/handover"
)

// BenchmarkTakeOver is what 100,000 nodes cost a daemon that takes a mount over.
func BenchmarkTakeOver(b *testing.B) {
	m, err := handover.New()
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	for i := range uint64(100_000) {
		name := fmt.Sprint("file-", i)
		_ = m.Nodes().Put(handover.Node{ID: i + 2, Ino: i + 1000, Parent: 1, Type: unix.S_IFREG, Name: name})
	}
	for b.Loop() {
		nodes, err := m.Nodes().Load()
		if err != nil {
			b.Fatal(err)
		}
		p := newPast()
		p.reserve(len(nodes))
		for _, r := range nodes {
			p.addLocked(r)
		}
	}
}
