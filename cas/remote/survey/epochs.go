package survey

import (
	"context"
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// Epoch reads an epoch.
func (r *Reading) Epoch(ctx context.Context, n uint32) (*record.Epoch, bucket.Version, error) {
	key := record.EpochKey(n)
	p, info, err := bucket.Read(ctx, r.b, key, record.MaxObject, "")
	if err != nil {
		return nil, "", err
	}
	e, err := record.DecodeEpoch(n, p)
	if err != nil {
		return nil, "", err
	}
	if e.Remote != r.remote {
		return nil, "", fmt.Errorf("%s is of remote %s: %w", key, e.Remote, cas.ErrCorrupt)
	}
	return e, info.Version, nil
}

// Named are the objects that epochs up to the newest condemned or deleted. What was forgotten since was
// deleted long ago, so that no head needs it.
func (r *Reading) Named(ctx context.Context, newest uint32) (set IDSet, err error) {
	for info, err := range r.b.List(ctx, record.Epochs, "") {
		if err != nil {
			return set, err
		}
		n, ok := record.ParseEpoch(info.Key)
		if !ok || n > newest {
			continue
		}
		e, _, err := r.Epoch(ctx, n)
		if err != nil {
			return set, err
		}
		set.AddKeys(e.Objects)
	}
	set.Sort()
	return set, nil
}
