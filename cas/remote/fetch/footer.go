package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"ckptfs/cas"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

// Footer reads what records an object has, by its footer: hash, place, lengths, kind and codec of each. n is
// how many there may be: with more it takes two requests.
func (r *Reader) Footer(ctx context.Context, o record.Object, n int) ([]segment.Record, error) {
	records, err := r.footer(ctx, o, n)
	if err != nil && !errors.As(err, new(*Error)) {
		err = &Error{Key: o.Class.Key(o.ID), Off: o.Len, Err: err}
	}
	return records, err
}

func (r *Reader) footer(ctx context.Context, o record.Object, n int) ([]segment.Record, error) {
	t, err := r.tail(ctx, o, max(0, o.Len-segment.FooterSize(n)))
	if err != nil {
		return nil, err
	}
	id := segment.ID{Store: o.ID, Number: 1}
	footer, err := segment.ReadFooter(t, o.Len, id)
	if err == nil && footer.Records > segment.MaxRecords {
		err = fmt.Errorf("%d records: %w", footer.Records, cas.ErrTooLarge)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, cas.ErrCorrupt)
	}
	if footer.Start() < t.off {
		if t, err = r.tail(ctx, o, footer.Start()); err != nil {
			return nil, err
		}
	}
	records := make([]segment.Record, 0, footer.Records)
	err = footer.Each(t, func(rec *segment.Record) error {
		records = append(records, *rec)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, cas.ErrCorrupt)
	}
	return records, nil
}

// tail is an object from off on, by one request.
type tail struct {
	off int64
	p   []byte
}

func (r *Reader) tail(ctx context.Context, o record.Object, off int64) (*tail, error) {
	key := o.Class.Key(o.ID)
	r.gets.Add(1)
	body, info, err := r.Bucket.Get(ctx, key, off, o.Len-off, "")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if info.Size != o.Len {
		return nil, fmt.Errorf("the object has %d bytes, want %d: %w", info.Size, o.Len, cas.ErrCorrupt)
	}
	t := &tail{off, make([]byte, o.Len-off)}
	k, err := io.ReadFull(body, t.p)
	r.bytes.Add(int64(k))
	return t, err
}

// ReadAt reads of what was got.
func (t *tail) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(t.p).ReadAt(p, off-t.off)
}
