package volume

import (
	"time"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
)

// Counters are what the volume has done since it was opened.
func (q *Requests) Counters() *control.Counters {
	c := &q.v.content.Count
	st := q.v.asm.Stats()
	records, recordBytes := q.v.store.Reads()
	return &control.Counters{
		PackedFiles: c.PackedFiles.Load(), PackedBytes: c.PackedBytes.Load(),
		PackSeconds:   time.Duration(c.PackTime.Load()).Seconds(),
		HydratedFiles: c.HydratedFiles.Load(), HydratedBytes: c.HydratedBytes.Load(),
		EvictedFiles: c.EvictedFiles.Load(), EvictedBytes: c.EvictedBytes.Load(),
		Opens: map[string]int64{
			"passthrough": c.Opens[content.Passthrough].Load(),
			"cached":      c.Opens[content.Cached].Load(),
			"direct":      c.Opens[content.Direct].Load(),
		},
		Reads: map[string]control.Reads{
			"raw":    c.ReadLocal.Get(),
			"packed": c.ReadPacked.Get(),
			"view":   c.Views.Get(),
		},
		Errors: map[string]int64{
			"pack":    c.PackErrs.Load(),
			"read":    c.ReadErrs.Load(),
			"hydrate": c.HydrateErrs.Load(),
			"evict":   c.EvictErrs.Load(),
			"sync":    c.SyncErrs.Load(),
		},
		Segments:  control.Reads{Calls: records, Bytes: recordBytes},
		CacheHits: st.Hits, CacheMisses: st.Misses, CacheBytes: st.CacheBytes,
		Handles: c.Handles.Load(),
	}
}
