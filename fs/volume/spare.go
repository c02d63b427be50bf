package volume

import (
	"context"
	"log/slog"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/policy"
)

const (
	// looksAtDisk is how often the disk is looked at, and restsAfter for how long it is not once that freed
	// nothing.
	looksAtDisk = 10 * time.Second
	restsAfter  = 10 * time.Minute
)

// keepFree keeps so many bytes of the disk free (RemoteOptions.KeepFree) until ctx ends: what no file needs
// is given back, then published files are dropped.
func (s *sharing) keepFree(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.v.surveyed:
	}
	for pause := looksAtDisk; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = looksAtDisk
		if !s.free(ctx) {
			pause = restsAfter
		}
	}
}

// keepsFree is how many bytes of the disk are kept free: none without a remote.
func (s *sharing) keepsFree() int64 {
	if s.get() == nil {
		return 0
	}
	return s.o.KeepFree
}

// missing is how many bytes of the disk are to be freed.
func (s *sharing) missing() int64 {
	_, free, err := s.v.reserve.Space()
	if err != nil {
		return 0
	}
	return s.o.KeepFree - free
}

// free frees what is missing. false: something is missing still.
func (s *sharing) free(ctx context.Context) bool {
	one := s.get()
	if one == nil || s.missing() <= 0 {
		return true
	}
	if !s.reclaimed(ctx) {
		return false
	}
	for {
		missing := s.missing()
		if missing <= 0 {
			return true
		}
		// What a file takes is not known before it is gone; as a rule it is half its size or more.
		d, err := one.Spare(ctx, 2*missing, s.lastUse)
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			s.v.report(slog.LevelWarn, "the disk is short, and not all could be dropped that is published", "reason", err)
		}
		if d.Files == 0 {
			return false
		}
		s.v.report(slog.LevelInfo, "the disk is short: files that the remote has were dropped", "files", d.Files,
			"bytes", d.Bytes)
		if !s.reclaimed(ctx) || err != nil {
			return false
		}
	}
}

// reclaimed gives back what no file needs.
func (s *sharing) reclaimed(ctx context.Context) bool {
	_, err := s.v.reclaim(ctx)
	if err != nil && ctx.Err() == nil {
		s.v.report(slog.LevelWarn, "the disk is short, and what no file needs could not be given back", "reason", err)
	}
	return err == nil
}

// lastUse is when a file was used last: opened, saved or pulled. One that a rule holds is in use.
func (s *sharing) lastUse(n *names.Node) (int64, error) {
	if n.File() != nil && ruled(s.v, policy.Hydrated, n.File()) {
		return math.MaxInt64, nil
	}
	var st unix.Stat_t
	if err := n.Stat(&st); err != nil {
		return 0, err
	}
	return max(st.Atim.Nano(), st.Ctim.Nano(), s.v.hot.Used(n.Ino())), nil
}
