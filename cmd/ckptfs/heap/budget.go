package heap

// How --memory is spent, of 512 MiB:
//
//	255  decoded chunks (--cache-size)
//	 64  manifests and lists of chunks, a quarter of that
//	 48  what the Go runtime does not count: the program itself, and the index's mapped pages
//	     that were touched
//	 24  segments read ahead, which it does not count either
//	121  requests, packing, the tables of files, steps and models, and what the garbage collector has
//	     not freed yet, which is held to the rest; packing works with as many cores as an eighth of all,
//	     64 MiB, has room for, and as many files wait for it as a sixteenth, 32 MiB, has room for
//
// With very many files the tables take more: local copies and models an eighth of all each, at most, and so
// do the files that the kernel remembers, unless there is room for more. Steps are not bounded: one of eleven
// files takes some 700 bytes (TestStepTakes of fs/steps). What stats and log count of very many chunks lies
// in files without a name (cas/spilled), whose pages are the kernel's cache.
//
// All these live on the heap. Where that needs more than the last line has, the decoded chunks make room,
// down to a quarter, and the kernel is asked to forget files beyond their eighth (Limit.Watch). The tensors
// of one file take a third of all at most while they are read (LayoutBytes); a file that has more is packed
// as one that has none.
//
// What the kernel keeps of files, and of the index beyond that, is its page cache, and goes when a program
// needs it: with two million chunks in the index and --memory 64MiB, 38 MiB were the daemon's own and 92 MiB
// of files, of which the kernel took 63 when told to (TestMemoryBesideALargeIndex).

// fixed is what the daemon takes whatever it keeps.
const fixed = 48 << 20

// Budget is what a mount may take, in bytes.
type Budget struct {
	All   int64 // --memory
	Cache int64 // --cache-size; 0: it follows from All
}

// CacheBytes is what decoded chunks may take.
func (b Budget) CacheBytes() int64 {
	if b.Cache > 0 {
		return max(b.Cache, 1<<20)
	}
	return (b.All - fixed) / 20 * 11
}

// PackBytes is what packing may take.
func (b Budget) PackBytes() int64 { return b.All / 8 }

// waitingFile is what a file takes, in bytes, that waits to be packed: its node, its state, its place.
const waitingFile = 1600

// MaxFiles is how many files may wait: a sixteenth of all is for them.
func (b Budget) MaxFiles() int { return int(b.All / 16 / waitingFile) }

// node is what a file takes, in bytes, that the kernel remembers: as waitingFile, without its place.
const node = 1200

// Nodes is how many files the kernel may remember where memory is short: an eighth of all is for them.
func (b Budget) Nodes() int { return int(b.All / 8 / node) }

// hotFile is what a packed file takes, in bytes, that has a local copy.
const hotFile = 40

// HotFiles is how many may have one: an eighth of all is for them.
func (b Budget) HotFiles() int { return int(b.All / 8 / hotFile) }

// model is what a model of few tensors takes, in bytes: 650 to 730 were measured with 122,000.
const model = 700

// Models is how many models may be known: an eighth of all is for them.
func (b Budget) Models() int { return int(b.All / 8 / model) }

// ExpectBytes is what segments may take that are read ahead.
func (b Budget) ExpectBytes() int64 { return min(24<<20, b.CacheBytes()/8) }

// Limit is what the Go runtime is held to, together with the decoded chunks that it does not know of.
func (b Budget) Limit() int64 { return b.All - b.All/16 - 16<<20 - b.ExpectBytes() }

// LayoutBytes is what the tensors of one file may take while they are read.
func (b Budget) LayoutBytes() int64 { return b.All / 3 }
