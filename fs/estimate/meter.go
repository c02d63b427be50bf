package estimate

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"ckptfs/fs/control"
)

// meter tells of the progress while one file is read, which may take longer than all others. Several
// goroutines may read by it. A file is read more than once where that pays: it tells no more than its size.
type meter struct {
	io.ReaderAt
	size int64
	tell func(read int64)
	now  func() time.Time

	read atomic.Int64
	mu   sync.Mutex
	told time.Time
}

// metered is what a file is read by, while nothing else is counted.
func (p *pass) metered(r io.ReaderAt, size int64, i int) io.ReaderAt {
	if p.o.Progress == nil {
		return r
	}
	before, total, so := p.read, p.total(), p.said
	return &meter{ReaderAt: r, size: size, now: p.o.Now, told: p.told, tell: func(read int64) {
		p.o.Progress(control.Progress{DoneBytes: before + read, TotalBytes: max(total, before+read),
			DoneFiles: i, TotalFiles: len(p.files)}, so)
	}}
}

func (m *meter) ReadAt(b []byte, off int64) (int, error) {
	n, err := m.ReaderAt.ReadAt(b, off)
	read := m.read.Add(int64(n))
	if m.mu.TryLock() {
		if now := m.now(); now.Sub(m.told) > tellEvery {
			m.told = now
			m.tell(min(read, m.size))
		}
		m.mu.Unlock()
	}
	return n, err
}
