package idle

import (
	"context"
	"time"

	"ckptfs/fs/content"
)

const (
	// owedMost is how long it works without a rest.
	owedMost = 10 * time.Millisecond
)

// Checksums makes the checksums of plain files that rest, one after the other, and takes half of a core at
// most. A file without a checksum is what it always was.
type Checksums struct {
	*Worker
	owed time.Duration // rest; of the one goroutine
}

func NewChecksums(o Options) *Checksums {
	o.Warning = "files that are not packed may be without checksums"
	s := &Checksums{Worker: NewWorker(o)}
	s.One = s.sum
	return s
}

// sum makes the checksum of a file, and rests from time to time as long as that took.
func (s *Checksums) sum(ctx context.Context, f *content.File) {
	began := time.Now()
	did, err := f.Sum(ctx)
	if err != nil {
		s.Failed(err)
	}
	if did {
		s.owed += time.Since(began)
	}
	if s.owed < owedMost {
		return
	}
	pause := time.NewTimer(s.owed)
	s.owed = 0
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}
