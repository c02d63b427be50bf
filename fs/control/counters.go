package control

// Counters are what a volume has done since it was opened. They only grow, but for what is said to be now.
type Counters struct {
	PackedFiles int64
	PackedBytes int64   // of those files
	PackSeconds float64 // time that packing took, summed over its workers

	HydratedFiles, HydratedBytes int64
	EvictedFiles, EvictedBytes   int64

	Opens map[string]int64 // by how the file is served: passthrough, cached, direct
	// by where the bytes came from: raw, packed, view; what passes the daemon is not seen
	Reads map[string]Reads

	Errors map[string]int64 // by what failed: pack, read, hydrate, evict, sync

	// records that were read from segments, also for packing and as bases of others
	Segments               Reads
	CacheHits, CacheMisses int64 // decoded chunks
	CacheBytes             int64 // now
	Handles                int64 // files and directories that programs hold open, now
}

// Reads are reads of one kind.
type Reads struct {
	Calls int64
	Bytes int64
}
