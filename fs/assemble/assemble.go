// Package assemble puts packed files back together: an io.ReaderAt over a manifest's extents.
//
// A read goes down like this:
//
//	file offset   → extent           binary search
//	extent        → object, offset   zeros end here
//	object        → list of chunks   loaded when first needed, kept in an LRU
//	chunk         → bytes            the LRU of decoded chunks, else fetched; several at a time, each by one
//	                                 goroutine only
//
// Memory is bounded. Decoded chunks lie in pooled buffers and are counted by the bytes of their buffers; an
// evicted buffer goes back to the pool when its last reader has let go of it. Only chunks being copied or
// fetched are beyond the bound. Chunks of about full size have slots of huge pages, beside Go's heap, unless
// the cache is small: memory that is touched first costs a third as much there, and the collector has less to
// do.
//
// A file that is read in order is read ahead; see streams. Chunks read ahead wait in a queue; a reader that
// needs one that waits fetches it itself.
package assemble
