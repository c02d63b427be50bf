package volume

import (
	"sync/atomic"
	"time"

	"ckptfs/fs/control"
)

// counters count since the volume was opened.
type counters struct {
	packedFiles, packedBytes     atomic.Int64
	packTime                     atomic.Int64 // nanoseconds, of all groups
	hydratedFiles, hydratedBytes atomic.Int64
	evictedFiles, evictedBytes   atomic.Int64

	opens                        [3]atomic.Int64 // by Mode
	readPlace, readPacked, views reads
	packErrs, readErrs, syncErrs atomic.Int64
	hydrateErrs, evictErrs       atomic.Int64
	handles                      atomic.Int64 // now
}

type reads struct{ calls, bytes atomic.Int64 }

func (r *reads) add(n int) {
	r.calls.Add(1)
	r.bytes.Add(int64(n))
}

func (r *reads) get() control.Reads {
	return control.Reads{Calls: r.calls.Load(), Bytes: r.bytes.Load()}
}

// tookSince adds the time since start to what packing took.
func (c *counters) tookSince(start time.Time) { c.packTime.Add(int64(time.Since(start))) }
