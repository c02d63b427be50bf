package content

import (
	"sync/atomic"
	"time"

	"ckptfs/fs/control"
)

// Counters count since the volume was opened.
type Counters struct {
	PackedFiles, PackedBytes     atomic.Int64
	PackTime                     atomic.Int64 // nanoseconds, of all groups
	HydratedFiles, HydratedBytes atomic.Int64
	EvictedFiles, EvictedBytes   atomic.Int64

	Opens                        [3]atomic.Int64 // by Mode
	ReadLocal, ReadPacked, Views Reads
	PackErrs, ReadErrs, SyncErrs atomic.Int64
	HydrateErrs, EvictErrs       atomic.Int64
	RoomErrs                     atomic.Int64 // those of PackErrs that are of no room, before any was taken
	NotWritten                   atomic.Int64 // syncs of inodes that failed, or may have
	Handles                      atomic.Int64 // now
	OpenFiles                    atomic.Int64 // now: those that a program has open
}

// Reads counts reads and their bytes.
type Reads struct{ Calls, bytes atomic.Int64 }

// Add counts one of n bytes.
func (r *Reads) Add(n int) {
	r.Calls.Add(1)
	r.bytes.Add(int64(n))
}

// Get is what was counted.
func (r *Reads) Get() control.Reads {
	return control.Reads{Calls: r.Calls.Load(), Bytes: r.bytes.Load()}
}

// TookSince adds the time since start to what packing took.
func (c *Counters) TookSince(start time.Time) { c.PackTime.Add(int64(time.Since(start))) }
