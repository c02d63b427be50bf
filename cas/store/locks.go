package store

import "ckptfs/cas/locks"

// The locks of this package, in the order in which they may be taken (package locks); those of package
// segment come between. Those of a pass over the whole store come before all locks of fs/, to which a pass
// calls back; the others come after these.
//
// No I/O happens under appenderLock, pinsLock or a leaf. A goroutine that holds reshapingLock, or one that
// comes after it, waits for no record that is claimed: the goroutine that claimed it may have to make the
// index again, for which it takes reshapingLock.
type (
	pruningLock    struct{} // passes.pruning
	compactingLock struct{} // passes.compacting
	sweepingLock   struct{} // passes.sweeping
	doubtingLock   struct{} // indexer.doubting
	reshapingLock  struct{} // passes.reshaping
	flushingLock   struct{} // appender.flushing
	indexerLock    struct{} // indexer.mu
	appenderLock   struct{} // appender.mu
	pinsLock       struct{} // pins.mu
	tellingLock    struct{} // checker.telling
	leafLock       struct{} // Compaction.mu, checker.mu
)

func (pruningLock) Rank() (int, string)    { return locks.Outer + 900, "passes.pruning" }
func (compactingLock) Rank() (int, string) { return locks.Outer + 910, "passes.compacting" }
func (sweepingLock) Rank() (int, string)   { return locks.Outer + 920, "passes.sweeping" }
func (doubtingLock) Rank() (int, string)   { return locks.Store + 10, "indexer.doubting" }
func (reshapingLock) Rank() (int, string)  { return locks.Store + 20, "passes.reshaping" }
func (flushingLock) Rank() (int, string)   { return locks.Store + 30, "appender.flushing" }
func (indexerLock) Rank() (int, string)    { return locks.Store + 40, "indexer.mu" }
func (appenderLock) Rank() (int, string)   { return locks.Store + 60, "appender.mu" }
func (pinsLock) Rank() (int, string)       { return locks.Store + 70, "pins.mu" }
func (tellingLock) Rank() (int, string)    { return locks.Store + 80, "checker.telling" }
func (leafLock) Rank() (int, string)       { return locks.Store + 990, "a leaf of cas/store" }

// passes keeps those apart that go through the whole store.
type passes struct {
	pruning    locks.Mutex[pruningLock]    // held by the one Sweep that is under way
	compacting locks.Mutex[compactingLock] // held by the one Compaction that is under way
	// sweeping is held to rewrite segments: by a Sweep all along, by a Compaction for a moment at a time.
	sweeping locks.Mutex[sweepingLock]
	// reshaping is held exclusively while a sealed segment is changed, shared while one is looked at as a
	// whole.
	reshaping locks.RWMutex[reshapingLock]
}
