package chunk

import "ckptfs/cas"

// GridLen is the number of chunks that n bytes make on the grid.
func GridLen(n int64) int64 { return (n + cas.ChunkSize - 1) / cas.ChunkSize }

// GridSpan is where chunk i of n bytes lies, i in [0, GridLen(n)).
func GridSpan(n, i int64) (off int64, length int) {
	off = i * cas.ChunkSize
	return off, int(min(cas.ChunkSize, n-off))
}
