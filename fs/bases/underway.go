package bases

import (
	"context"
	"slices"

	"ckptfs/cas/locks"
)

// underway are the files that look for what is alike and are not in the store yet, in the order in which they
// came. Of files that are copied in at once, a base and its fine-tunes, say, several are packed at the same
// time: without it none would find the others. The zero value is ready for use, by several goroutines.
type underway struct {
	mu    locks.Mutex[underwayLock]
	files []*arrival
}

// arrival is one of these files.
type arrival struct {
	signature
	gone chan struct{} // closed once it is in the store, or will not be
}

// come notes a file with such signs, which are in order, and returns when all that are alike and came before
// it have gone, or ctx has ended. Since nobody waits for who came later, all waits end. leave, which may be
// called again, says that the file is in the store or will not be.
func (u *underway) come(ctx context.Context, signs []uint64) (leave func()) {
	a := &arrival{signature{signs: least(signs)}, make(chan struct{})}
	u.mu.Lock()
	var before []*arrival
	for _, f := range u.files {
		if f.mostly(f.common(signs)) {
			before = append(before, f)
		}
	}
	u.files = append(u.files, a)
	u.mu.Unlock()
	for _, f := range before {
		select {
		case <-f.gone:
		case <-ctx.Done():
		}
	}
	return func() { u.leave(a) }
}

func (u *underway) leave(a *arrival) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i := slices.Index(u.files, a); i >= 0 {
		u.files = slices.Delete(u.files, i, i+1)
		close(a.gone)
	}
}
