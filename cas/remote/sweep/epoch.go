package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/survey"
)

// state reads the newest epoch; 0 and no version if there was none.
func (c *collection) state(ctx context.Context) (*record.State, bucket.Version, error) {
	p, info, err := bucket.Read(ctx, c.b, record.StateKey, record.MaxState, "")
	if errors.Is(err, bucket.ErrNotFound) {
		return &record.State{Remote: c.o.Remote}, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	s, err := record.DecodeState(p)
	if err != nil {
		return nil, "", err
	}
	if s.Remote != c.o.Remote {
		return nil, "", fmt.Errorf("%s is of remote %s: %w", record.StateKey, s.Remote, cas.ErrCorrupt)
	}
	return s, info.Version, nil
}

// condemn makes an epoch; not ours: somebody else has made it.
func (c *collection) condemn(ctx context.Context, n uint32, objects []record.Key) (ours bool, err error) {
	e := record.Epoch{Remote: c.o.Remote, Number: n, Time: c.o.Now().UnixNano(), Collector: c.o.Collector,
		Objects: objects}
	p, err := e.Encode()
	if err != nil {
		return false, err
	}
	_, err = c.put(ctx, record.EpochKey(n), p, bucket.Cond{Absent: true})
	if errors.Is(err, bucket.ErrPrecondition) {
		return false, nil
	}
	return err == nil, err
}

// publish makes s the state that had this version; false: it had another one.
func (c *collection) publish(ctx context.Context, s record.State, version bucket.Version) (bool, error) {
	p, err := s.Encode()
	if err != nil {
		return false, err
	}
	_, err = c.put(ctx, record.StateKey, p, bucket.Cond{Absent: version == "", Version: version})
	if refused(err) {
		return false, nil
	}
	return err == nil, err
}

// decide writes down what of an epoch is deleted: what is not live, or what somebody else decided before.
func (c *collection) decide(ctx context.Context, e *record.Epoch, version bucket.Version, live survey.IDSet) (
	*record.Epoch, error) {
	decided := *e
	decided.Deleted = true
	decided.Objects = slices.DeleteFunc(slices.Clone(e.Objects), func(k record.Key) bool {
		return live.Has(k.ID)
	})
	p, err := decided.Encode()
	if err != nil {
		return nil, err
	}
	_, err = c.put(ctx, record.EpochKey(e.Number), p, bucket.Cond{Version: version})
	if !refused(err) {
		return &decided, err
	}
	other, _, err := c.heads.Epoch(ctx, e.Number)
	if err == nil && !other.Deleted {
		err = fmt.Errorf("%s was overwritten, and nothing decided: %w", record.EpochKey(e.Number),
			cas.ErrCorrupt)
	}
	return other, err
}

// refused: the object is not what it was when it was read.
func refused(err error) bool {
	return errors.Is(err, bucket.ErrPrecondition) || errors.Is(err, bucket.ErrNotFound)
}

// put puts an object under a condition. Where that may have been done, it looks, and puts again what it did
// not find: the same bytes under the same condition, so that once at most is one of them done.
func (c *collection) put(ctx context.Context, key string, p []byte, cond bucket.Cond) (
	bucket.Version, error) {
	return c.putBody(ctx, key, bucket.Bytes(p), p, cond)
}

// putBody is put of a body, whose bytes are p.
func (c *collection) putBody(ctx context.Context, key string, body bucket.Body, p []byte, cond bucket.Cond) (
	bucket.Version, error) {
	doubt := false
	for {
		version, err := c.b.Put(ctx, key, body, cond)
		switch {
		case errors.Is(err, bucket.ErrConflict):
			continue
		case errors.Is(err, bucket.ErrDoubt):
			doubt = true
		case err == nil, !doubt || !refused(err):
			return version, err
		}
		there, info, getErr := bucket.Read(ctx, c.b, key, record.MaxObject, "")
		switch {
		case getErr == nil && bytes.Equal(there, p):
			return info.Version, nil
		case getErr != nil && !errors.Is(getErr, bucket.ErrNotFound):
			return "", getErr
		case refused(err):
			return "", err
		}
	}
}

// forget deletes epochs that are kept for long enough, all of them before newest.
func (c *collection) forget(ctx context.Context, newest uint32) error {
	var old []string
	for info, err := range c.b.List(ctx, record.Epochs, "") {
		if err != nil {
			return err
		}
		n, ok := record.ParseEpoch(info.Key)
		if ok && n < newest && c.o.Keep > 0 && c.heads.Date.Sub(info.Modified) > c.o.Keep {
			old = append(old, info.Key)
		}
	}
	if len(old) == 0 {
		return nil
	}
	return c.b.Delete(ctx, old)
}
