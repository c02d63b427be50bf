package volume

import "ckptfs/fs/control"

// Counters are what the volume has done since it was opened.
func (v *Volume) Counters() *control.Counters {
	c := &control.Counters{}
	st := v.asm.Stats()
	c.CacheHits, c.CacheMisses, c.CacheBytes = st.Hits, st.Misses, st.CacheBytes
	return c
}
