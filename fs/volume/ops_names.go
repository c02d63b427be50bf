package volume

import (
	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
)

// Node returns the node of an id that the kernel holds, or nil.
func (v *Volume) Node(id content.NodeID) *Node { return v.names.tab.get(id) }

// Forget takes nlookup of the kernel's references to a node.
func (v *Volume) Forget(id content.NodeID, nlookup uint64) { v.names.Forget(id, nlookup) }

// Path is the node's path below the mount's root, by one of its names.
func (v *Volume) Path(n *Node) string { return n.Path() }

// StatFS describes the disk that the store lies on.
func (v *Volume) StatFS() (unix.Statfs_t, error) { return v.names.StatFS() }

// OpenDir opens a directory.
func (v *Volume) OpenDir(n *Node) (*DirHandle, error) { return v.names.OpenDir(n) }

// ReleaseDir closes it.
func (v *Volume) ReleaseDir(d *DirHandle) { v.names.ReleaseDir(d) }
