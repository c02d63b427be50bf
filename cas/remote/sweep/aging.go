package sweep

import (
	"context"
	"errors"
	"slices"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// classes are those of the objects that are collected, in the order of their keys.
var classes = []record.Class{record.ClassData, record.ClassShard, record.ClassMeta, record.ClassTable}

// condemnable lists what nothing refers to, notes since when, and returns what of it is past the grace.
func (c *collection) condemnable(ctx context.Context, m *mark) ([]record.Key, error) {
	unreferenced, err := c.unreferenced(ctx, m.live)
	if err != nil {
		return nil, err
	}
	old, version, err := c.aging(ctx)
	if err != nil {
		return nil, err
	}
	now := c.heads.date
	aging := &record.Aging{Remote: c.o.Remote}
	var past []record.Key
	for _, k := range unreferenced {
		since := now.Unix()
		i, known := slices.BinarySearchFunc(old.Objects, k, func(a record.Aged, k record.Key) int {
			return a.Key.Compare(k)
		})
		if known {
			since = min(since, old.Objects[i].Since)
		}
		aging.Objects = append(aging.Objects, record.Aged{Key: k, Since: since})
		if now.Sub(time.Unix(since, 0)) >= c.o.Grace && len(past) < maxCondemned {
			past = append(past, k)
		}
	}
	if c.o.DryRun {
		return past, nil
	}
	return past, c.note(ctx, aging, version)
}

// unreferenced lists all objects, and returns those that are not live, ascending.
func (c *collection) unreferenced(ctx context.Context, live idSet) ([]record.Key, error) {
	c.stats.Listed, c.stats.Unreferenced = Count{}, Count{}
	var keys []record.Key
	for _, class := range classes {
		for info, err := range c.b.List(ctx, class.Prefix(), "") {
			if err != nil {
				return nil, err
			}
			_, id, ok := record.ParseObject(info.Key)
			if !ok {
				continue
			}
			c.stats.Listed.add(info.Size)
			if !live.has(id) {
				c.stats.Unreferenced.add(info.Size)
				keys = append(keys, record.Key{Class: class, ID: id})
			}
		}
	}
	return keys, nil
}

func (n *Count) add(size int64) {
	n.Objects++
	n.Bytes += size
}

// aging reads since when what is unreferenced. What cannot be read is begun again.
func (c *collection) aging(ctx context.Context) (*record.Aging, bucket.Version, error) {
	p, info, err := bucket.Read(ctx, c.b, record.AgingKey, record.MaxObject, "")
	if errors.Is(err, bucket.ErrNotFound) {
		return &record.Aging{}, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	c.heads.dated(info)
	a, err := record.DecodeAging(p)
	if errors.Is(err, cas.ErrCorrupt) || err == nil && a.Remote != c.o.Remote {
		return &record.Aging{}, info.Version, nil
	}
	return a, info.Version, err
}

// note writes the aging, unless another collector did at the same time. Of what is too much the first stays.
func (c *collection) note(ctx context.Context, a *record.Aging, version bucket.Version) error {
	if len(a.Objects) > maxCondemned {
		a.Objects = a.Objects[:maxCondemned]
	}
	p, err := a.Encode()
	if err != nil {
		return err
	}
	cond := bucket.Cond{Absent: version == "", Version: version}
	_, err = c.b.Put(ctx, record.AgingKey, bucket.Bytes(p), cond)
	if refused(err) || errors.Is(err, bucket.ErrDoubt) || errors.Is(err, bucket.ErrConflict) {
		return nil
	}
	return err
}
