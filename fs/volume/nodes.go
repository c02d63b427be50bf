package volume

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/names"
)

// nodes are the names for the parts that know files alone.
type nodes struct{ *names.Names }

// known is the file of an inode, with one reference more, nil if there is no node of it.
func (s nodes) known(ino uint64) *content.File {
	n := s.Names.Known(ino)
	if n == nil {
		return nil
	}
	if n.File() == nil {
		n.Unpin()
		return nil
	}
	return n.File()
}

// seek looks through the tree for the files of some inodes, until found returns false.
func (s nodes) seek(
	ctx context.Context, wanted func(ino uint64) bool, found func(*content.File) bool,
) error {
	enough := errors.New("enough")
	file := func(_ string, n *names.Node, _ *unix.Stat_t) error {
		if !found(n.File()) {
			return enough
		}
		return nil
	}
	err := s.Tour(ctx, names.Tour{Only: wanted, File: file})
	if err == enough {
		return nil
	}
	return err
}

// eachFile calls f with every file that there is a node of.
func (s nodes) eachFile(f func(*content.File)) {
	s.Each(func(n *names.Node) {
		if n.File() != nil {
			f(n.File())
		}
	})
}
