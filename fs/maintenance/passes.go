package maintenance

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
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
	Spill    *disk.Folder // where lies what a pass notes of very many records; nil: in memory
	ReadOnly bool
	Now      func() time.Time
	Report   func(level slog.Level, msg string, args ...any)
	Epoch    func() uint32 // the boot's, as checksums name it
	Workers  int           // goroutines that look at files, at most; all but one wait for their turns

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
	// Plan reads where a remote has the file of a manifest; nil: the store is used without a remote.
	Plan func(manifest cas.Hash) error
	Last Last
	// Pruning has room for one, and holds it while a prune is under way.
	Pruning chan struct{}
}

// look looks at a file, which st describes as it was found; nil: it is not known.
type look func(path string, n *names.Node, st *unix.Stat_t) error

// tour calls do with each file of the tree, from several goroutines.
func (p *Passes) tour(ctx context.Context, do look) error {
	return p.Names.Tour(ctx, p.with(do))
}

// with is a tour by as many as there may be.
func (p *Passes) with(do look) names.Tour {
	return names.Tour{Workers: p.Workers, Turn: p.Throttle.Turn, File: do}
}

// asFound describes the inode of a file, whose record is loaded and whose mu is held. What a tour saw of it
// before that holds unless this process, or a program by it, has changed it since the start.
func asFound(n *names.Node, found *unix.Stat_t) (st unix.Stat_t, err error) {
	is := n.File().StateLocked()
	if found != nil && !is.Moved && is.Gen == 0 && !is.InUse {
		return *found, nil
	}
	err = n.Stat(&st)
	return st, err
}
