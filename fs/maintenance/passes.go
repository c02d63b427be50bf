package maintenance

import (
	"log/slog"
	"time"

	"ckptfs/cas/disk"
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
	Folder   *disk.Folder // the store's
	ReadOnly bool
	Now      func() time.Time
	Report   func(level slog.Level, msg string, args ...any)
	Epoch    func() uint32 // the boot's, as checksums name it

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
	// SyncNames makes the names and records in the tree durable.
	SyncNames func() error
	// Packed is called with each packed file that the survey looks at. File.mu is held.
	Packed func(f *content.File)
}
