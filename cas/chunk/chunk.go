// Package chunk cuts bytes into chunks.
//
// Where the cuts fall decides what deduplicates against what, for as long as a store lives: change a
// parameter here and nothing that is stored already is ever found again. There are two ways to cut.
//
// Tensor data is cut on a fixed grid, counted from the tensor's first byte:
//
//	0            256 KiB       512 KiB       768 KiB    n
//	├─ chunk 0 ──┼─ chunk 1 ───┼─ chunk 2 ───┼─ chunk 3 ┤     chunks = ceil(n / 256 KiB)
//
// Values inside a tensor change in place and never shift, so a grid finds what content-defined cuts would
// find, and costs nothing.
//
// Everything else is cut where its content says so, by FastCDC (Xia et al., "FastCDC: a Fast and Efficient
// Content-Defined Chunking Approach for Data Deduplication", USENIX ATC 2016, with normalised chunking at
// level 2):
//
//	minimum 16 KiB   no cut is looked for before it
//	normal  64 KiB   up to here a cut needs 18 zero bits of the gear hash, from here on 14
//	maximum 256 KiB  a cut is made
//
// Documents that grow (tree ensembles, see formats.Layout.Fine) are cut finely, so that what a save adds
// costs little more than itself: minimum 1 KiB, normal 4 KiB (14 zero bits before, 10 after), maximum 16 KiB.
// Their chunks are grouped into lists where the content says so: after a chunk whose last 64 bytes have a
// CRC-32C that is a multiple of 16.
//
// The gear table and the masks are those of go-cdc-chunkers' "fastcdc-v1.0.0", unkeyed. Goldens hold the
// cuts, and tests compare them with that library's. Its chunker reads a stream from one end to the other; a
// CDC also looks ahead (Ahead) and tells whether a chunk that is known from before ends where it did (Ends).
package chunk

import "ckptfs/cas"

// MaxLen bounds the length of every chunk that this package cuts.
const MaxLen = cas.ChunkSize
