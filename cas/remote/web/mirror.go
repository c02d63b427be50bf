package web

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// Mirror is a bucket of which a server has copies. Objects that never change are read there, as long as that
// goes well; everything else, and what the mirror does not have, is read from the bucket. A mirror need not
// be trusted: who finds its bytes wrong reads them from Past.
type Mirror struct {
	bucket.Bucket // the one that is mirrored
	copies        bucket.Bucket
	since         time.Time
	until         atomic.Int64 // since then, ns: it is not asked before
}

// rest is for how long a mirror is not asked that could not be reached.
const rest = 10 * time.Second

// NewMirror has b be read from copies.
func NewMirror(copies, b bucket.Bucket) *Mirror {
	return &Mirror{Bucket: b, copies: copies, since: time.Now()}
}

// Past is the bucket itself.
func (m *Mirror) Past() bucket.Bucket { return m.Bucket }

// Get reads from the mirror, and from the bucket what does not come from there.
func (m *Mirror) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	class, _, ok := record.ParseObject(key)
	if !ok || class == record.ClassShard || n <= 0 || unless != "" ||
		int64(time.Since(m.since)) < m.until.Load() {
		return m.Bucket.Get(ctx, key, off, n, unless)
	}
	body, info, err := m.copies.Get(ctx, key, off, n, "")
	if err != nil {
		m.failed(ctx, err)
		return m.Bucket.Get(ctx, key, off, n, unless)
	}
	info.Version = "" // it says nothing of the bucket's
	return &mirrored{ReadCloser: body, m: m, ctx: ctx, key: key, off: off, end: min(off+n, info.Size)},
		info, nil
}

// failed has the mirror rest if it could not be reached.
func (m *Mirror) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, bucket.ErrUnreachable) || errors.Is(err, bucket.ErrBusy) ||
		errors.Is(err, bucket.ErrCut) {
		m.until.Store(int64(time.Since(m.since) + rest))
	}
}

// mirrored is a body from the mirror. What does not come any more comes from the bucket.
type mirrored struct {
	io.ReadCloser
	m        *Mirror
	ctx      context.Context
	key      string
	off, end int64 // what is left
	bucket   bool  // it comes from there
}

func (r *mirrored) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.off += int64(n)
	if err == nil || r.off >= r.end || r.bucket {
		return n, err
	}
	r.m.failed(r.ctx, err)
	body, _, err := r.m.Bucket.Get(r.ctx, r.key, r.off, r.end-r.off, "")
	if err != nil {
		return n, err
	}
	r.ReadCloser.Close()
	r.ReadCloser, r.bucket = body, true
	return n, nil
}
