package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/record"
)

// full is how many items a new shard gets where there are more: it has room for some.
const full = record.MaxItems / 4 * 3

// merge makes the shards of the items that the index has and of the new ones, in whose place they are.
func (m *making) merge(ctx context.Context) error {
	fresh := make([]record.Item, 0, len(m.items))
	for d, plan := range m.items {
		fresh = append(fresh, record.Item{Digest: d, Plan: plan})
	}
	slices.SortFunc(fresh, func(a, b record.Item) int { return cmp.Compare(a.Digest, b.Digest) })
	var old []record.Shard
	if !m.discard {
		old = m.head.Index.Shards
	}
	var pending []record.Item
	for i, s := range old {
		n := len(fresh)
		if i+1 < len(old) {
			n, _ = slices.BinarySearchFunc(fresh, old[i+1].First,
				func(x record.Item, d record.Digest) int { return cmp.Compare(x.Digest, d) })
		}
		items, err := m.shard(ctx, s)
		if err != nil {
			return err
		}
		merged, same := m.merged(items, fresh[:n])
		fresh = fresh[n:]
		if same && len(pending) == 0 {
			m.next.Shards = append(m.next.Shards, s)
			continue
		}
		if pending, err = m.put(ctx, append(pending, merged...), record.MaxItems); err != nil {
			return err
		}
	}
	pending, err := m.put(ctx, append(pending, fresh...), record.MaxItems)
	if err == nil {
		_, err = m.put(ctx, pending, 0)
	}
	return err
}

// merged are the items of a shard with new ones in their place, but for those of no file. same: they are the
// shard's.
func (m *making) merged(items, fresh []record.Item) (all []record.Item, same bool) {
	same = true
	for len(items) > 0 || len(fresh) > 0 {
		switch {
		case len(fresh) == 0 || len(items) > 0 && items[0].Digest < fresh[0].Digest:
			if m.keepAll || m.live[items[0].Plan] {
				all = append(all, items[0])
			} else {
				m.made.Removed++
				same = false
			}
			items = items[1:]
		default:
			if len(items) > 0 && items[0].Digest == fresh[0].Digest {
				same = same && items[0].Plan == fresh[0].Plan
				items = items[1:]
			} else {
				same = false
			}
			all, fresh = append(all, fresh[0]), fresh[1:]
		}
	}
	return all, same
}

// shard reads a shard of the index. The error is errLost if it is not there as it should be.
func (m *making) shard(ctx context.Context, s record.Shard) ([]record.Item, error) {
	p, _, err := bucket.Read(ctx, m.b, record.ClassShard.Key(s.ID), record.MaxObject, "")
	var items []record.Item
	if err == nil {
		items, err = record.DecodeShard(m.o.Remote, s, p)
	}
	if fetch.Lost(err) || errors.Is(err, bucket.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", errLost, err)
	}
	return items, err
}

// put puts shards while there are more items than most, and returns what is left.
func (m *making) put(ctx context.Context, items []record.Item, most int) ([]record.Item, error) {
	for len(items) > most {
		n := min(full, len(items))
		if err := m.putShard(ctx, items[:n]); err != nil {
			return nil, err
		}
		items = items[n:]
	}
	return items, nil
}

func (m *making) putShard(ctx context.Context, items []record.Item) error {
	id, err := record.DrawID(m.o.Random)
	if err != nil {
		return err
	}
	p, err := record.EncodeShard(m.o.Remote, items)
	if err != nil {
		return err
	}
	body := bucket.Bytes(p)
	body.Immutable = true
	if _, err = m.b.Put(ctx, record.ClassShard.Key(id), body, bucket.Cond{Absent: true}); err != nil {
		if unsettled(err) {
			err = fmt.Errorf("%w: %w", errAgain, err) // under another name: this one may come yet
		}
		return err
	}
	m.next.Shards = append(m.next.Shards,
		record.Shard{ID: id, First: items[0].Digest, Items: int64(len(items))})
	m.made.Put += int64(len(p))
	return nil
}
