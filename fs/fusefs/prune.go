package fusefs

import (
	"log/slog"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
)

// pruneOut is a notification: struct fuse_out_header, and struct fuse_notify_prune_out, which the ids of
// nodes follow.
type pruneOut struct {
	length uint32
	code   int32
	unique uint64

	count uint32
	_     uint32
	_     uint64
}

// prunedAtATime is how many nodes one notification names.
const prunedAtATime = 512

// prune has the kernel forget nodes that no program uses. EINVAL from one that cannot.
func (d *device) prune(ids []content.NodeID) error {
	return d.open(func() error {
		m := pruneOut{code: notifyPrune, count: uint32(len(ids))}
		size := int(unsafe.Sizeof(m))
		m.length = uint32(size + 8*len(ids))
		return d.notify(unsafe.Slice((*byte)(unsafe.Pointer(&m)), size),
			unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(ids))), 8*len(ids)))
	})
}

// prune has the kernel forget nodes where there are too many, until the mount is gone.
func prune(s *Server) {
	for {
		select {
		case <-s.dead:
			return
		case <-s.v.Names().Crowd.Told():
		}
		for some := range slices.Chunk(s.v.Names().Crowd.Oldest(), prunedAtATime) {
			if err := s.dev.prune(some); err == unix.EINVAL {
				s.log(slog.LevelInfo,
					"the daemon may take more than --memory for files that the kernel remembers (Linux 6.18 forgets them)")
				return
			}
		}
	}
}
