package main

// How --memory is spent, of 512 MiB:
//
//	255  decoded chunks (--cache-size)
//	 64  manifests and lists of chunks, a quarter of that
//	 48  what the Go runtime does not count: the program itself, and the index's mapped pages
//	     that were touched
//	 24  segments read ahead, which it does not count either
//	121  requests, packing, the table of files, and what waits for the garbage collector, which is
//	     held to the rest; packing works with as many cores as an eighth of all, 64 MiB, has room for, and
//	     as many files wait for it as a sixteenth, 32 MiB, has room for
//
// The decoded chunks make room, down to a quarter, where what lives on the heap needs it (package heap). The
// tensors of one file take a third of all at most while they are read (layoutBytes); a file that has more is
// packed as one that has none.
//
// What the kernel keeps of files, and of the index beyond that, is its page cache, and goes when a program
// needs it: with two million chunks in the index and --memory 64MiB, 38 MiB were the daemon's own and 92 MiB
// of files, of which the kernel took 63 when told to (TestMemoryBesideALargeIndex).

// fixed is what the daemon takes whatever it keeps.
const fixed = 48 << 20

// cacheBytes is what decoded chunks may take.
func (c *mountConfig) cacheBytes() int64 {
	if c.cacheSize.Given {
		return max(c.cacheSize.Bytes, 1<<20)
	}
	return (c.memory.Bytes - fixed) / 20 * 11
}

// waitingFile is what a file takes, in bytes, that waits to be packed: its node, its state, its place.
const waitingFile = 1600

// maxFiles is how many files may wait: a sixteenth of all is for them.
func (c *mountConfig) maxFiles() int { return int(c.memory.Bytes / 16 / waitingFile) }

// expectBytes is what segments may take that are read ahead.
func (c *mountConfig) expectBytes() int64 { return min(24<<20, c.cacheBytes()/8) }

// memoryLimit is what the Go runtime is held to, together with the decoded chunks that it does not know of;
// see package heap.
func (c *mountConfig) memoryLimit() int64 {
	return c.memory.Bytes - c.memory.Bytes/16 - 16<<20 - c.expectBytes()
}

// layoutBytes is what the tensors of one file may take while they are read.
func (c *mountConfig) layoutBytes() int64 { return c.memory.Bytes / 3 }
