package volume

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"ckptfs/cas"
	"ckptfs/cas/remote/bring"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/store"
	"ckptfs/fs/share"
)

// reads is the assemble.Store of a volume: the local store, and behind it the remote.
type reads struct {
	*store.Store
	share atomic.Pointer[share.Share]
	bring bring.Bringer
}

func (r *reads) Get(h cas.Hash, dst []byte) ([]byte, error) {
	p, err := r.Store.Get(h, dst)
	s := r.share.Load()
	if s == nil || !errors.Is(err, cas.ErrNotFound) {
		return p, err
	}
	f, ferr := s.File(h)
	if ferr != nil || f == nil {
		return p, err
	}
	b := r.Begin()
	defer b.Release()
	if err := r.bring.File(context.Background(), b, &record.Entry{File: f}); err != nil {
		return nil, err
	}
	if err := b.Commit(); err != nil {
		return nil, err
	}
	return r.Store.Get(h, dst)
}

func (r *reads) join(s *share.Share, f *fetch.Reader) {
	r.bring = bring.Bringer{Reader: f, Store: r.Store}
	r.share.Store(s)
}

// Pin is content.Remote's.
func (r *reads) Pin(h cas.Hash) (func(), error) {
	_, err := r.Size(h)
	return func() {}, err
}

// Size is content.Remote's.
func (r *reads) Size(h cas.Hash) (int64, error) {
	s := r.share.Load()
	if s == nil {
		return 0, fmt.Errorf("manifest %s: the file is a remote's, and the store is used without it: %w", h.Short(), cas.ErrNotFound)
	}
	f, err := s.File(h)
	if err == nil && f == nil {
		err = fmt.Errorf("manifest %s: the remote is not known to have it: %w", h.Short(), cas.ErrNotFound)
	}
	if err != nil {
		return 0, err
	}
	return f.Size, nil
}
