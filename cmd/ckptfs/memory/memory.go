// Package memory has a store opened within a bound on memory: by a daemon within --memory, by a command
// within its default. Package ckptfs/cmd/ckptfs/heap says how the memory is spent.
package memory

import (
	"ckptfs/cmd/ckptfs/heap"
	"ckptfs/fs/volume"
)

// Default is the default of --memory, in bytes.
const Default = 512 << 20

// Bound has a volume that is opened with these options keep to a budget, and this process to what is left of
// it. How many models there may be, and how many tensors in a file, is as it was.
func Bound(o *volume.Options, b heap.Budget) {
	limit := heap.NewLimit(b.Limit())
	o.Most.Waiting, o.Most.Resident, o.Most.Nodes = b.MaxFiles(), b.HotFiles(), b.Nodes()
	o.CacheBytes, o.ExpectBytes, o.PackBytes = b.CacheBytes(), b.ExpectBytes(), b.PackBytes()
	o.Mapped = limit.Beside
	o.Room = func(yield func(int64)) { limit.Watch(b.CacheBytes(), yield) }
}
