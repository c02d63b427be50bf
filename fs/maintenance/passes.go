// Package maintenance looks through a whole store: the survey of a start, check, prune's mark, compact,
// usage, and the repairs. It keeps nothing between two calls.
//
//	Survey        every file once after a start: queues what is not packed, and mends what an unclean end left
//	Check         every segment, every file and what it is made of; changes nothing
//	Prune         the mark of mark-and-sweep; cas/store has the sweep
//	Compact       stores again, file by file, what takes less room by now
//	Stats         what the files refer to, and what the segments cost
//	RepairClosed  mends the index or the segments of a store that no process has open
//	RepairTree    mends the files of an open store that is not mounted
//
// All but the repairs run while files are saved, read, renamed and removed. A pass looks at a file without
// its lock. Before it reports or changes something it takes File.mu and looks again. A file that has changed
// meanwhile is left alone: the change queues what is to be done about it.
package maintenance

import (
	"log/slog"
	"time"

	"ckptfs/cas/store"
	"ckptfs/fs/artifacts"
	"ckptfs/fs/assemble"
	"ckptfs/fs/bases"
	"ckptfs/fs/content"
	"ckptfs/fs/idle"
	"ckptfs/fs/models"
	"ckptfs/fs/names"
	"ckptfs/fs/pack"
	"ckptfs/fs/queue"
	"ckptfs/fs/residency"
	"ckptfs/fs/throttle"
)

// Passes go over a whole store. Its fields are the parts of the store, and do not change.
type Passes struct {
	Dir, Tree string // the store's folder, and that of its tree; absolute
	ReadOnly  bool
	Now       func() time.Time
	Report    func(level slog.Level, msg string, args ...any)
	Epoch     func() uint32 // the boot's, as checksums name it

	Store     *store.Store
	Assemble  *assemble.Reader
	Pack      *pack.Packer
	Files     *content.Files
	Names     *names.Names
	Queue     *queue.Queue
	Reserve   *queue.Reserve
	Throttle  *throttle.Throttle // nil: none
	Bases     *bases.Finder      // nil: nothing is stored against an earlier version
	Hot       *residency.LRU
	Sums      *idle.Checksums
	Models    *models.Models
	Artifacts *artifacts.Artifacts
	// Packed is called with each packed file that the survey looks at. File.mu is held.
	Packed func(f *content.File)
}
