package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// identify reads who the store is, and registers it if it was never registered.
func (w *Writer) identify(ctx context.Context) (err error) {
	if !w.loaded {
		if w.id, err = w.State.Identity(); err != nil {
			return err
		}
	}
	if w.loaded = true; w.id.Writer != "" {
		return nil
	}
	if w.Joined != "" {
		h, version, err := w.getHead(ctx, w.Joined)
		switch {
		case err == nil && h.Sequence == 0:
			if err := w.become(w.Joined); err != nil {
				return err
			}
			w.head, w.version = h, version
			return nil
		case err == nil:
			return w.registerAgain(ctx, w.Joined, "what this store knew of its commits is lost")
		case !errors.Is(err, bucket.ErrNotFound):
			return err
		}
	}
	return w.register(ctx)
}

// register makes the store another writer.
func (w *Writer) register(ctx context.Context) error {
	writer, err := w.Register(ctx)
	if err != nil {
		return err
	}
	return w.become(writer)
}

func (w *Writer) become(writer record.Writer) error {
	instance, err := record.DrawID(w.Random)
	if err != nil {
		return err
	}
	w.head, w.last = nil, nil
	return w.setIdentity(Identity{Writer: writer, Instance: instance})
}

// setIdentity changes the identity once the State has it.
func (w *Writer) setIdentity(id Identity) error {
	if err := w.State.SetIdentity(id); err != nil {
		return err
	}
	w.id = id
	return nil
}

// registerAgain registers the store under another name, and says so.
func (w *Writer) registerAgain(ctx context.Context, was record.Writer, why string) error {
	if err := w.register(ctx); err != nil {
		return fmt.Errorf("%s: %w", why, err)
	}
	return &RegisteredError{Was: was, Now: w.id.Writer, Why: why}
}

// getHead reads a head.
func (w *Writer) getHead(ctx context.Context, writer record.Writer) (*record.Head, bucket.Version, error) {
	p, info, err := bucket.Read(ctx, w.Bucket, record.HeadKey(writer), record.MaxHead, "")
	if err != nil {
		return nil, "", err
	}
	h, err := record.DecodeHead(writer, p)
	if err == nil {
		err = h.CheckRemote(writer, w.Remote)
	}
	return h, info.Version, err
}

// readHead sets head and version, and notes a commit of which no answer had come.
func (w *Writer) readHead(ctx context.Context) error {
	if w.head != nil {
		return nil
	}
	h, version, err := w.getHead(ctx, w.id.Writer)
	if errors.Is(err, bucket.ErrNotFound) {
		return w.registerAgain(ctx, w.id.Writer, fmt.Sprintf("%s is gone", record.HeadKey(w.id.Writer)))
	}
	if err != nil {
		return err
	}
	if err := w.recognize(ctx, h); err != nil {
		return err
	}
	w.head, w.version = h, version
	return nil
}

// recognize holds that a head is that of the last commit, or of one that was sent after it.
func (w *Writer) recognize(ctx context.Context, h *record.Head) error {
	switch {
	case h.Commit == w.id.Commit:
		return nil
	case slices.Contains(w.id.Pending, h.Commit):
		w.last = nil
		return w.acknowledge(h)
	case h.Folded:
		return w.registerAgain(ctx, w.id.Writer, fmt.Sprintf("%s was folded, since nothing was published for long",
			record.HeadKey(w.id.Writer)))
	case h.Sequence < w.id.Sequence:
		return fmt.Errorf("%s is of commit %d, and %d was acknowledged: %w", record.HeadKey(w.id.Writer),
			h.Sequence, w.id.Sequence, ErrRolledBack)
	}
	return w.registerAgain(ctx, w.id.Writer, fmt.Sprintf("%s has a commit of another process of the same identity",
		record.HeadKey(w.id.Writer)))
}

// acknowledge notes that the commit of h was made: none that was sent before can be made any more.
func (w *Writer) acknowledge(h *record.Head) error {
	id := w.id
	id.Commit, id.Sequence, id.Pending = h.Commit, h.Sequence, nil
	return w.setIdentity(id)
}
