package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/writer"
	"ckptfs/cmd/ckptfs/remote"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
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
	if got := exitCode(cutOff(ctx, get)); got != exitUnreachable {
		t.Errorf("nobody interrupted: %d", got)
	}
	interrupt()
	for _, err := range []error{get, put, cut, all} {
		var b bytes.Buffer
		err := cutOff(ctx, err)
		(&app{err: &b}).complain(err)
		if got := b.String(); got != "ckptfs: interrupted\n" || exitCode(err) != exitInterrupted {
			t.Errorf("%d, %q", exitCode(err), got)
		}
	}
	for _, err := range []error{nil, errPartial, fmt.Errorf("/mnt: still mounted: %w", context.Canceled)} {
		if got := cutOff(ctx, err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}

// Every failure has the same code here as when it came from a daemon.
func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code int
	}{
		{nil, exitOK},
		{errors.New("odd"), exitFailure},
		{syscall.ENOSPC, exitFailure},
		{syscall.ENOENT, exitFailure},
		{syscall.EBUSY, exitBusy},
		{cas.ErrNewer, exitNewer},
		{&cas.ChunkError{Err: cas.ErrCorrupt}, exitDamaged},
		{context.Canceled, exitInterrupted},
		{writer.ErrRolledBack, exitUnfit},
		{&remote.UnfitError{}, exitUnfit},
		{&control.Error{Code: control.CodeBusy, Message: "m"}, exitBusy},
		{&control.Error{Code: control.CodeUnsupported, Message: "m"}, exitNotStore},
		{&control.Error{Code: control.CodeConflict, Message: "m"}, exitConflict},
		{&control.Error{Code: control.CodeUnavailable, Message: "m"}, exitFailure},
	} {
		if got := exitCode(tc.err); got != tc.code {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.code)
		}
		if tc.err == nil {
			continue
		}
		if got := exitCode(control.AsError(fmt.Errorf("wrapped: %w", tc.err))); got != tc.code {
			t.Errorf("%v from a daemon: %d, want %d", tc.err, got, tc.code)
		}
	}
	for _, tc := range []struct {
		err  error
		code int
	}{
		{&tree.LockedError{}, exitBusy},
		{fmt.Errorf("x: %w", tree.ErrNotStore), exitNotStore},
		{&usageError{}, exitUsage},
		{errPartial, exitPartial},
		{&exitError{42, cas.ErrCorrupt}, 42},
	} {
		if got := exitCode(tc.err); got != tc.code {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.code)
		}
	}
	text := exitCodesTopic().Long
	for _, code := range []int{exitOK, exitFailure, exitUsage, exitNotStore, exitBusy, exitNewer, exitDamaged,
		exitPartial, exitInterrupted} {
		if !strings.Contains(text, fmt.Sprintf("\n    %d ", code)) {
			t.Errorf("exit code %d is not documented", code)
		}
	}
}
