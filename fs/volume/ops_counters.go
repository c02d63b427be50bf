package volume

import (
	"ckptfs/fs/control"
	"time"
)

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
