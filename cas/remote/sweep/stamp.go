package sweep

import (
	"context"
	"errors"
	"maps"
	"slices"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
)

// identity is an entry's.
type identity struct {
	path    string
	origin  record.Writer
	version int64
}

func identityOf(e *record.Entry) identity { return identity{e.Path, e.Origin, e.Version} }

// stamp gives each head that is there the stamp n, and takes out what may go.
func (c *collection) stamp(ctx context.Context, n uint32) error {
	m, err := c.heads.mark(ctx)
	if err != nil {
		return err
	}
	spare := m.spare()
	for _, w := range slices.Sorted(maps.Keys(m.heads)) {
		if err := c.stampHead(ctx, w, n, spare); err != nil {
			return err
		}
	}
	return nil
}

// spare are the entries that may go.
func (m *mark) spare() map[identity]bool {
	spare := map[identity]bool{}
	for _, held := range names.Paths(m.lists...) {
		for _, e := range held {
			if names.Spare(e, held) {
				spare[identityOf(e)] = true
			}
		}
	}
	return spare
}

// stampHead stamps a head until it is stamped.
func (c *collection) stampHead(ctx context.Context, w record.Writer, n uint32,
	spare map[identity]bool) error {
	for {
		h, version, err := c.heads.fetch(ctx, w, "")
		if errors.Is(err, bucket.ErrNotFound) {
			return nil
		}
		if err != nil || h.Stamp >= n {
			return err
		}
		h.Remote, h.Stamp = c.o.Remote, n
		entries := len(h.Tail)
		h.Tail = slices.DeleteFunc(h.Tail, func(e record.Entry) bool { return spare[identityOf(&e)] })
		p, err := h.Encode(w)
		if err != nil {
			return err
		}
		_, err = c.b.Put(ctx, record.HeadKey(w), bucket.Bytes(p), bucket.Cond{Version: version})
		switch {
		case err == nil:
			c.stats.Stamped++
			c.stats.TakenOut += entries - len(h.Tail)
			return nil
		case !refused(err) && !errors.Is(err, bucket.ErrDoubt) && !errors.Is(err, bucket.ErrConflict):
			return err
		}
	}
}
