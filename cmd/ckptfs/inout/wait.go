package inout

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/inplace"
	"ckptfs/fs/tree"
)

// claim is inplace.Claim of a store that may be there; nil: it is not. A process that was killed keeps its
// claim until it is gone, and the daemon that it started, which has it too, until that has mounted.
func claim(ctx context.Context, s Shell, store string) (*os.File, error) {
	return claimed(ctx, s, store, "another process is moving its folder, or copies its files", inplace.Claim)
}

// share is claim for one that copies the store's files, beside others.
func share(ctx context.Context, s Shell, store string) (*os.File, error) {
	return claimed(ctx, s, store, "another process is moving its folder", inplace.Share)
}

func claimed(ctx context.Context, s Shell, store, busy string, by func(*disk.Folder) (*os.File, error)) (
	claim *os.File, err error) {
	if _, err := os.Lstat(filepath.Join(store, tree.FormatFile)); err != nil {
		return nil, nil // what opens it says why
	}
	d, err := disk.OpenFolder(store)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	werr := await(ctx, s, store, busy, func() bool {
		claim, err = by(d)
		return !errors.Is(err, unix.EBUSY)
	})
	return claim, errors.Join(err, werr)
}

// free waits until nobody has the store, which is not mounted: an earlier command that was killed had its
// daemon unmount, and that may be closing the store still. Who has it longer is named by what opens it next.
func free(ctx context.Context, s Shell, store string) error {
	return await(ctx, s, store, "another process has it", func() bool { return !tree.Used(store) })
}

// quiet is how long nothing is said of a wait.
const quiet = time.Second / 2

// await waits until something is over, and no longer than a daemon that ends may take. It says that it does.
func await(ctx context.Context, s Shell, store, what string, over func() bool) error {
	said := false
	for began := time.Now(); !over() && time.Since(began) < answers; {
		if !said && time.Since(began) > quiet {
			said = true
			s.Say("%s: %s; waiting for it to end", text.Printable(store), what)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
