package content

import "ckptfs/cas/locks"

// The locks of this package, in the order in which they may be taken. What Inode and Events take comes
// between File.mu and source.io. No goroutine holds the mu of two files.
type (
	syncingLock struct{} // syncs.mu
	cloningLock struct{} // Files.Cloning
	fileLock    struct{} // File.mu
	parseLock   struct{} // Files.parsing: held while a large header is read
	sourceLock  struct{} // source.io
	leafLock    struct{} // copiers.mu, unsyncedInodes.mu and forgotten.mu
)

func (syncingLock) Rank() (int, string) { return locks.Volume + 7, "syncs.mu" }
func (cloningLock) Rank() (int, string) { return locks.Volume + 90, "Files.Cloning" }
func (fileLock) Rank() (int, string)    { return locks.Volume + 100, "File.mu" }
func (parseLock) Rank() (int, string)   { return locks.Volume + 110, "Files.parsing" }
func (sourceLock) Rank() (int, string)  { return locks.Volume + 950, "source.io" }
func (leafLock) Rank() (int, string) {
	return locks.Volume + 990, "copiers.mu, unsyncedInodes.mu or forgotten.mu"
}
