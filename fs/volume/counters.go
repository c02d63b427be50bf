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

// Counters are what the volume has done since it was opened.
func (v *Volume) Counters() *control.Counters {
	c := &v.content.count
	st := v.asm.Stats()
	records, recordBytes := v.store.Reads()
	return &control.Counters{
		PackedFiles: c.packedFiles.Load(), PackedBytes: c.packedBytes.Load(), PackSeconds: time.Duration(c.packTime.Load()).Seconds(),
		HydratedFiles: c.hydratedFiles.Load(), HydratedBytes: c.hydratedBytes.Load(),
		EvictedFiles: c.evictedFiles.Load(), EvictedBytes: c.evictedBytes.Load(),
		Opens: map[string]int64{
			"passthrough": c.opens[Passthrough].Load(), "cached": c.opens[Cached].Load(), "direct": c.opens[Direct].Load(),
		},
		Reads: map[string]control.Reads{"raw": c.readPlace.get(), "packed": c.readPacked.get(), "view": c.views.get()},
		Errors: map[string]int64{
			"pack": c.packErrs.Load(), "read": c.readErrs.Load(), "hydrate": c.hydrateErrs.Load(), "evict": c.evictErrs.Load(),
			"sync": c.syncErrs.Load(),
		},
		Segments:  control.Reads{Calls: records, Bytes: recordBytes},
		CacheHits: st.Hits, CacheMisses: st.Misses, CacheBytes: st.CacheBytes,
		Handles: c.handles.Load(),
	}
}
