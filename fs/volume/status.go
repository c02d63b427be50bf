package volume

import (
	"context"
	"os"
	"slices"
	"sort"

	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/queue"
)

// maxSidecars bounds the problems of sidecars that Status names.
const maxSidecars = 64

// backlog is the files that are closed and not packed yet.
type backlog struct {
	all, queued control.Queue
	packing     []string // paths, sorted
}

func backlogOf(v *Volume) backlog {
	u := backlog{packing: []string{}}
	for f, stage := range v.queue.Pending() {
		size := f.Unpacked()
		u.all.Files++
		u.all.Bytes += size
		switch stage {
		case queue.Packing:
			u.packing = append(u.packing, f.Path())
		case queue.Queued:
			u.queued.Files++
			u.queued.Bytes += size
		}
		f.Unpin()
	}
	sort.Strings(u.packing)
	return u
}

func upkeepOf(v *Volume) control.Upkeep {
	u := control.Upkeep{LastPrune: v.passes.LastPrune.Load(), LastCheck: v.passes.LastCheck.Load()}
	if size, free, err := v.reserve.Space(); err == nil {
		u.DiskBytes, u.FreeBytes = size, free
	}
	return u
}

// Status is what the volume is doing now.
func (q *Requests) Status(ctx context.Context) (*control.Status, error) {
	m := q.v.mount()
	s := &control.Status{
		Store: q.v.folder.Path(), Mountpoint: m.point, Mode: m.mode, ModeReason: m.reason, PID: os.Getpid(),
		Started: q.v.started, HotSize: q.v.hot.Max,
		Failures: failures(q.v.queue.Failures, q.v.hot.Failures), Plain: failures(q.v.queue.Crowded),
	}
	if q.v.recovery != nil {
		s.Recovery = q.v.recovery.Repaired()
	}
	s.Loss = q.v.durability.loss()
	q.v.models.Refresh(ctx)
	if problems := q.v.models.Problems(); problems != nil {
		shown := min(len(problems), maxSidecars)
		s.Sidecars, s.MoreSidecars = problems[:shown], len(problems)-shown
	}
	if refused := q.v.models.Refused(); refused != "" {
		s.Sidecars = append(slices.Clip(s.Sidecars), refused)
	}
	if s.Mode == "" {
		s.Mode = control.ModeUnmounted
	}
	s.Upkeep = upkeepOf(q.v)
	waiting := q.v.queue.Status()
	if !waiting.Since.IsZero() {
		s.QueuedSince = &waiting.Since
	}
	s.MaxUnpacked, s.WaitingCloses, s.PackingWaits = waiting.MaxUnpacked, waiting.WaitingCloses, waiting.Waits
	if q.v.readOnly { // nothing is written, and no close waits
		s.MaxUnpacked = 0
	}
	u := backlogOf(q.v)
	s.Queue, s.Packing, s.UnpackedBytes = u.queued, u.packing, u.all.Bytes
	q.v.names.Each(func(n *names.Node) {
		if f := n.File(); f != nil {
			f.Lock()
			is := f.StateLocked()
			if is.Open {
				s.OpenFiles++
			}
			if is.Writers > 0 {
				s.UnpackedBytes += f.UnpackedLocked()
			}
			f.Unlock()
		}
	})
	s.Remote = q.v.sharing.status(ctx)
	s.Unidentified.Files, s.Unidentified.More = q.v.ids.Pending()
	s.ResidentBytes = q.v.hot.Bytes()
	return s, nil
}
