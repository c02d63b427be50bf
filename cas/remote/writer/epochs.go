package writer

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// besideEpochs has put done, and returns the newest epoch, of which and of all before State knew what they
// condemned when put began. errAgain: there is one that it did not know, and knows now.
func (w *Writer) besideEpochs(ctx context.Context, put func(context.Context) error) (uint32, error) {
	if !w.recent { // there may be many that are not known, and all that is known may be forgotten
		newest, err := w.newestEpoch(ctx)
		if err == nil {
			_, err = w.learnEpochs(ctx, newest)
		}
		if err != nil {
			return 0, err
		}
		w.recent = true
		return newest, put(ctx)
	}
	newest, err := w.beside(ctx, put)
	if err != nil {
		return 0, err
	}
	fresh, err := w.learnEpochs(ctx, newest)
	if err == nil && fresh {
		err = fmt.Errorf("%w: epoch %d has begun", errAgain, newest)
	}
	return newest, err
}

// beside has put done while it reads what the newest epoch is; behind that, if no goroutine is to be started.
func (w *Writer) beside(ctx context.Context, put func(context.Context) error) (newest uint32, err error) {
	if w.Parallel <= 1 {
		if err := put(ctx); err != nil {
			return 0, err
		}
		return w.newestEpoch(ctx)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		newest, err = w.newestEpoch(ctx)
		return err
	})
	g.Go(func() error { return put(ctx) })
	err = g.Wait()
	return newest, err
}

// learnEpochs has the State know what all epochs up to the newest condemned; fresh: it did not know of one.
func (w *Writer) learnEpochs(ctx context.Context, newest uint32) (fresh bool, err error) {
	known, err := w.State.Epoch()
	if err != nil {
		return false, err
	}
	if newest < max(known, w.head.Stamp) {
		return false, fmt.Errorf("%s is of epoch %d, and %d was seen: %w", record.StateKey, newest,
			max(known, w.head.Stamp), ErrRolledBack)
	}
	for n := known + 1; n <= newest && n != 0; n++ {
		if err := w.readEpoch(ctx, n); err != nil {
			return false, err
		}
	}
	return known < newest, nil
}

func (w *Writer) newestEpoch(ctx context.Context) (uint32, error) {
	p, _, err := bucket.Read(ctx, w.Bucket, record.StateKey, record.MaxState, "")
	if errors.Is(err, bucket.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	s, err := record.DecodeState(p)
	if err != nil {
		return 0, err
	}
	if s.Remote != w.Remote {
		return 0, corrupt("%s is of remote %s", record.StateKey, s.Remote)
	}
	return s.Epoch, nil
}

// readEpoch notes what an epoch condemned; all of it, whatever it deleted. An epoch that is not kept any more
// says nothing: then nothing that is known is relied on.
func (w *Writer) readEpoch(ctx context.Context, n uint32) error {
	p, _, err := bucket.Read(ctx, w.Bucket, record.EpochKey(n), record.MaxObject, "")
	if errors.Is(err, bucket.ErrNotFound) {
		if err := w.State.Forget(); err != nil {
			return err
		}
		return w.State.Condemn(n, nil)
	}
	if err != nil {
		return err
	}
	e, err := record.DecodeEpoch(n, p)
	if err != nil {
		return err
	}
	if e.Remote != w.Remote {
		return corrupt("%s is of remote %s", record.EpochKey(n), e.Remote)
	}
	ids := make([]record.ID, len(e.Objects))
	for i, k := range e.Objects {
		ids[i] = k.ID
	}
	return w.State.Condemn(n, ids)
}
