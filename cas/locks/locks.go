// Package locks has mutexes whose order is checked. Built with the tag lockrank, every goroutine's held locks
// are known, and taking one out of order panics, whether or not two goroutines would have met there. Built
// without tags, Mutex and RWMutex are sync.Mutex and sync.RWMutex: the same size, the same inlined calls, no
// cost.
//
// # Declaring an order
//
// Every mutex has a rank: a number and a name. A goroutine may lock only what has a higher number than all
// that it holds. The rank is a type parameter, so that the zero value is ready for use and no mutex can be
// without one. A package writes its order once, in one block, outermost first:
//
//	// The locks of this package, in the order in which they may be taken.
//	type (
//		fileLock struct{} // File.mu: the state of one file
//		nameLock struct{} // Tree.ns: the names
//		leafLock struct{} // Queue.mu and LRU.mu: nothing is locked under one of them
//	)
//
//	func (fileLock) Rank() (int, string) { return locks.Volume + 10, "File.mu" }
//	func (nameLock) Rank() (int, string) { return locks.Volume + 20, "Tree.ns" }
//	func (leafLock) Rank() (int, string) { return locks.Volume + 90, "a leaf" }
//
//	type File struct {
//		mu locks.Mutex[fileLock]
//		…
//	}
//
// The numbers of the areas (Outer, Volume, Store, Index) order the packages among each other: what calls
// comes before what it calls.
//
// # What is checked
//
//	Lock, RLock   panic when the goroutine holds a lock of the same or a higher rank, shared or not. The
//	              message names both, and the line that took the one that is held.
//	LockSame      as Lock, but locks of the same rank may be held: for two files, say, whose mutexes every
//	              caller takes by ascending inode number. That order is the caller's to keep.
//	TryLock       takes no part in a deadlock and is not checked; what is locked after it is.
//	Unlock        panics when the lock is not held. Another goroutine than the one that locked may unlock.
//	AssertHeld    panics when this goroutine does not hold the lock. It is for the first line of a function
//	              whose name ends in Locked. Without the tag it does nothing.
//
// Two mutexes of one rank cannot be held together but by LockSame, which is what a leaf is: give the leaves
// one rank. A shared lock is no exception: a goroutine that takes an RWMutex shared twice waits for ever when
// a writer comes between.
//
// A sync.Cond over &x.mu works: waiting gives the lock back and takes it again, and waiting with a lock of a
// higher rank held panics.
//
//	go test -race -tags lockrank ./...
//
// # Counting
//
// With the tag locktime the order is not checked. How often each lock is taken is counted (Uses), how often
// somebody had to wait for it, and how long it was held; BenchmarkCores in fs/volume prints that.
package locks

// Ranked is implemented by an empty struct that stands for one place in the order of the locks.
type Ranked interface {
	// Rank is the place in the order, of which the lower ones are taken first, and what the lock is called in
	// a panic.
	Rank() (place int, name string)
}

// The areas, in the order in which they call each other. A package's places lie within the thousand above its
// area.
const (
	Outer  = 0    // passes over a whole store, which call back into fs: a sweep, a compaction
	Volume = 1000 // fs/...
	Store  = 2000 // cas/store
	Index  = 3000 // index
)
