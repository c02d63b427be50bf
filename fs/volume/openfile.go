package volume

import (
	"context"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ckptfs/fs/assemble"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
)

// openFile is what an open file does, by the kind of its node: a file of the tree, or one without an inode.
// Handle passes on to it.
type openFile interface {
	Read(p []byte, off int64) (int, error)
	Lend(n int, off int64) (*assemble.Loan, int, error)
	Write(p []byte, off int64) (int, error)
	CopyFrom(src content.Source, srcOff, dstOff, n int64, thread uint32) (int64, error)
	Fallocate(mode uint32, off, n int64) error
	Seek(off int64, whence int) (int64, error)
	Release()

	fsync() error
	closing(v *Volume, killed bool)   // a close(2)
	answer(ctx context.Context) error // what a close(2) finds, as Handle.Answer has it
	source() content.Source           // to copy from
}

// treeFile is an open file of the tree. What is not here is content.Handle's.
type treeFile struct {
	*content.Handle
	file *content.File
}

func (t *treeFile) fsync() error                 { return t.Sync() }
func (t *treeFile) answer(context.Context) error { return nil }
func (t *treeFile) source() content.Source       { return t.Handle }

// closing counts the close of a writer, and has it wait for the queue.
func (t *treeFile) closing(v *Volume, killed bool) {
	if t.Writes {
		v.queue.MakeRoom(t.file, t.Flush(killed))
	}
}

// synthetic is an open view or virtual file. It has nothing to sync, and is not copied to.
type synthetic struct {
	names.Opened
	node  *names.Node
	write bool
	count *atomic.Int64 // of the open handles of such nodes
}

func (s *synthetic) Lend(int, int64) (*assemble.Loan, int, error) { return nil, 0, nil }

func (s *synthetic) Write(p []byte, off int64) (int, error) {
	if !s.write {
		return 0, unix.EBADF
	}
	return s.Opened.Write(p, off)
}

func (s *synthetic) CopyFrom(content.Source, int64, int64, int64, uint32) (int64, error) {
	return 0, unix.EOPNOTSUPP
}

func (s *synthetic) Fallocate(uint32, int64, int64) error { return unix.EOPNOTSUPP }

func (s *synthetic) Seek(off int64, whence int) (int64, error) {
	return content.SeekDense(off, whence, s.node.Synth().Size())
}

// Size is what content.Source asks of what is copied from.
func (s *synthetic) Size() (int64, error) { return s.node.Synth().Size(), nil }

func (s *synthetic) Release() {
	s.count.Add(-1)
	s.Close()
	s.node.Unpin()
}

func (s *synthetic) fsync() error                     { return nil }
func (s *synthetic) closing(*Volume, bool)            {}
func (s *synthetic) answer(ctx context.Context) error { return s.Flush(ctx) }
func (s *synthetic) source() content.Source           { return s }
