package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"ckptfs/cas/remote/bucket"
)

// meetings is how often a check of conditions begins again because others check by the same key.
const meetings = 8

// Conditions checks, by some requests on one key, that conditions hold: what is asked again by each process
// that publishes. The error is bucket.ErrUnfit if they do not. Several may check by one key at once: a disk
// was copied, or a request of an earlier check comes late.
func Conditions(ctx context.Context, b bucket.Bucket, key string) error {
	for range meetings {
		p := &probe{ctx: ctx, nodes: []bucket.Bucket{b}, b: b, id: random()}
		err := p.swapsAt(key)
		if err == nil {
			err = p.createsOnlyOnce(key, p.body("two"))
		}
		if !errors.Is(err, bucket.ErrUnfit) {
			return err
		}
		met, readErr := p.met(key)
		if readErr != nil {
			return readErr
		}
		if !met {
			return fmt.Errorf("%w: %w", bucket.ErrUnfit, err)
		}
	}
	return &bucket.Error{Op: "put", Key: key, Kind: bucket.ErrConflict}
}

// met reports whether an object is what somebody else put.
func (p *probe) met(key string) (bool, error) {
	got, _, err := bucket.Read(p.ctx, p.b, p.prefix+key, 1<<20, "")
	if errors.Is(err, bucket.ErrNotFound) {
		return false, nil
	}
	return err == nil && !bytes.HasSuffix(got, p.body("")), err
}

// Guarded is a bucket whose conditions are checked before anything relies on one: an engine that kept them
// may have been replaced by one that does not.
type Guarded struct {
	bucket.Bucket
	key     string
	checked *checked
}

type checked struct {
	mu  sync.Mutex
	fit bool
}

// Guard guards b by checks on a key, which no others use.
func Guard(b bucket.Bucket, key string) *Guarded {
	return &Guarded{Bucket: b, key: key, checked: &checked{}}
}

// Past is what bucket.Past returns, guarded.
func (g *Guarded) Past() bucket.Bucket {
	return &Guarded{Bucket: bucket.Past(g.Bucket), key: g.key, checked: g.checked}
}

// Put puts nothing on a condition that the engine may not keep.
func (g *Guarded) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	if cond != (bucket.Cond{}) {
		if err := g.check(ctx); err != nil {
			return "", err
		}
	}
	return g.Bucket.Put(ctx, key, body, cond)
}

func (g *Guarded) check(ctx context.Context) error {
	g.checked.mu.Lock()
	defer g.checked.mu.Unlock()
	if g.checked.fit {
		return nil
	}
	err := Conditions(ctx, g.Bucket, g.key)
	g.checked.fit = err == nil
	return err
}
