package sweep

import (
	"context"
	"errors"
	"slices"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/survey"
)

// classes are those of the objects that are collected, in the order of their keys.
var classes = []record.Class{record.ClassData, record.ClassShard, record.ClassMeta, record.ClassTable}

// condemnable lists what nothing refers to, notes since when, and returns what of it is past the grace.
func (c *collection) condemnable(ctx context.Context, m *survey.Mark) ([]record.Key, error) {
	old, version, err := c.aging(ctx)
	if err != nil {
		return nil, err
	}
	aging := &record.Aging{Remote: c.o.Remote}
	var past []record.Key
	now := c.heads.Date
	c.stats.Listed, c.stats.Unreferenced, c.stats.Condemned, c.stats.Next = Count{}, Count{}, Count{},
		time.Time{}
	err = c.unreferenced(ctx, m.Live, func(k record.Key, size int64) {
		since := now.Unix()
		i, known := slices.BinarySearchFunc(old.Objects, k, func(a record.Aged, k record.Key) int {
			return a.Key.Compare(k)
		})
		if known {
			since = min(since, old.Objects[i].Since)
		}
		if len(aging.Objects) < maxCondemned { // the rest is for later collections
			aging.Objects = append(aging.Objects, record.Aged{Key: k, Since: since})
		}
		switch end := time.Unix(since, 0).Add(c.o.Grace); {
		case !now.Before(end) && len(past) < maxCondemned:
			past = append(past, k)
			c.stats.Condemned.add(size)
		case c.stats.Next.IsZero() || end.Before(c.stats.Next):
			c.stats.Next = end
		}
	})
	if err != nil || c.o.DryRun {
		return past, err
	}
	return past, c.note(ctx, aging, version)
}

// unreferenced lists all objects, and calls f with those that are not live, ascending.
func (c *collection) unreferenced(ctx context.Context, live survey.IDSet,
	f func(k record.Key, size int64)) error {
	for _, class := range classes {
		for info, err := range c.b.List(ctx, class.Prefix(), "") {
			if err != nil {
				return err
			}
			_, id, ok := record.ParseObject(info.Key)
			if !ok {
				continue
			}
			if c.stats.Listed.add(info.Size); c.stats.Listed.Objects%1000 == 0 {
				c.say("listing objects", c.stats.Listed.Objects)
			}
			if !live.Has(id) {
				c.stats.Unreferenced.add(info.Size)
				f(record.Key{Class: class, ID: id}, info.Size)
			}
		}
	}
	return nil
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
	c.heads.Dated(info)
	a, err := record.DecodeAging(p)
	if errors.Is(err, cas.ErrCorrupt) || err == nil && a.Remote != c.o.Remote {
		return &record.Aging{}, info.Version, nil
	}
	return a, info.Version, err
}

// note writes the aging, unless another collector did at the same time.
func (c *collection) note(ctx context.Context, a *record.Aging, version bucket.Version) error {
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
