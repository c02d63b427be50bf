package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cmd/ckptfs/exit"
)

// Who interrupts a command is told that it was, not how programs say so.
func TestInterrupted(t *testing.T) {
	var b bytes.Buffer
	a := &app{err: &b}
	a.complain(fmt.Errorf("/mnt: still mounted: %w", context.Canceled))
	if got := b.String(); got != "ckptfs: /mnt: still mounted: interrupted\n" {
		t.Errorf("%q", got)
	}
}

// Requests that a signal cut off say nothing of the object store.
func TestCutOff(t *testing.T) {
	ctx, interrupt := context.WithCancel(context.Background())
	get := &bucket.Error{Op: "get", Key: "format", Kind: bucket.ErrUnreachable, Err: context.Canceled}
	put := &bucket.Error{Op: "put", Key: "hint", Kind: bucket.ErrDoubt, Err: context.Canceled}
	cut := &bucket.Error{Op: "get", Key: "hint", Kind: bucket.ErrCut, Err: errors.New("interrupt signal received")}
	all := fmt.Errorf("s3://models/team: %w", errors.Join(put, get))
	if got := exit.Code(exit.CutOff(ctx, get)); got != exit.Unreachable {
		t.Errorf("nobody interrupted: %d", got)
	}
	interrupt()
	for _, err := range []error{get, put, cut, all} {
		var b bytes.Buffer
		err := exit.CutOff(ctx, err)
		(&app{err: &b}).complain(err)
		if got := b.String(); got != "ckptfs: interrupted\n" || exit.Code(err) != exit.Interrupted {
			t.Errorf("%d, %q", exit.Code(err), got)
		}
	}
	for _, err := range []error{nil, exit.ErrPartial, fmt.Errorf("/mnt: still mounted: %w", context.Canceled)} {
		if got := exit.CutOff(ctx, err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}
