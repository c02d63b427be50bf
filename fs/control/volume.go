package control

import "context"

// Volume is what the protocol needs of a filesystem; *volume.Volume is one. Every path is relative to
// the mount's root, cleaned, without a leading slash; "" is the root itself.
//
// progress may be nil, is called from one goroutine at a time, and must not block for long.
// Errors that carry a syscall.Errno (fs.ErrNotExist and the like) keep it over the wire.
type Volume interface {
	Stats(ctx context.Context) (*Stats, error)
	Status(ctx context.Context) (*Status, error)
	// Du says what files take, and what removing them gives back.
	Du(ctx context.Context, o DuOptions) (*Du, error)
	// Sync packs everything that waits, and returns when it is packed and durable.
	Sync(ctx context.Context, progress func(Progress)) error
	// Evict drops the local copies of the packed files at or below path.
	Evict(ctx context.Context, path string, progress func(Progress)) (*Moved, error)
	// Hydrate restores the local copies of the packed files at or below path.
	Hydrate(ctx context.Context, path string, progress func(Progress)) (*Moved, error)
	// Prune gives back what no file needs any more.
	Prune(ctx context.Context, o PruneOptions, progress func(Progress)) (*Pruned, error)
	// Compact encodes chunks again that can be stored in less room.
	Compact(ctx context.Context, o CompactOptions, progress func(Progress)) (*Compacted, error)
	// Check looks for damage and changes nothing. Damage is no error.
	Check(ctx context.Context, o CheckOptions, progress func(Progress)) (*Checked, error)
	// Show describes a file, or a set of files, and its tensors.
	Show(ctx context.Context, path string, tensors Passes) (*File, error)
}
