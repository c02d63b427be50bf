package writer

import (
	"context"
	"errors"
	"fmt"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// readEpochs returns the newest epoch, and has the State know what it and all before condemned.
func (w *Writer) readEpochs(ctx context.Context) (uint32, error) {
	newest, err := w.newestEpoch(ctx)
	if err != nil {
		return 0, err
	}
	known, err := w.State.Epoch()
	if err != nil {
		return 0, err
	}
	if newest < max(known, w.head.Stamp) {
		return 0, fmt.Errorf("%s is of epoch %d, and %d was seen: %w", record.StateKey, newest,
			max(known, w.head.Stamp), ErrRolledBack)
	}
	for n := known + 1; n <= newest && n != 0; n++ {
		if err := w.readEpoch(ctx, n); err != nil {
			return 0, err
		}
	}
	return newest, nil
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
