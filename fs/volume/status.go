package volume

import (
	"context"
	"os"
	"slices"
	"sort"
	"strings"

	"ckptfs/fs/control"
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
	w := queue.WaitingIn(v.queue)
	u := backlog{packing: []string{}, queued: w.Queued}
	u.all.Files = w.Queued.Files + w.Packing.Files + len(w.Delayed)
	u.all.Bytes = w.Queued.Bytes + w.Packing.Bytes
	for _, f := range w.Names {
		u.packing = append(u.packing, f.Path())
		f.Unpin()
	}
	for _, f := range w.Delayed {
		u.all.Bytes += f.Unpacked()
		f.Unpin()
	}
	sort.Strings(u.packing)
	return u
}

// written is how many bytes the files have that have a writer now.
func written(v *Volume) (sum int64) {
	for _, ino := range v.steps.Writing.Open() {
		f := nodes{v.names}.known(ino)
		if f == nil {
			continue
		}
		f.Lock()
		if f.StateLocked().Writers > 0 {
			sum += f.UnpackedLocked()
		}
		f.Unlock()
		f.Unpin()
	}
	return sum
}

// writtenBelow reports whether a file below a path has a writer now.
func writtenBelow(v *Volume, path string) bool {
	return slices.ContainsFunc(v.steps.Writing.Open(), func(ino uint64) bool {
		f := nodes{v.names}.known(ino)
		if f == nil {
			return false
		}
		defer f.Unpin()
		return strings.HasPrefix(f.Path(), path+"/")
	})
}

// looking is how many files the survey of the start has come to; nil once it is over.
func looking(v *Volume) *int64 {
	select {
	case <-v.surveyed:
		return nil
	default:
		n := v.survey.Looked()
		return &n
	}
}

func upkeepOf(v *Volume) control.Upkeep {
	if v.passes.Last.Beside {
		_ = v.passes.Last.Recall(v.folder) // another reader may have checked it; the open told why not
	}
	u := control.Upkeep{Looking: looking(v),
		LastPrune: v.passes.Last.Prune.Load(), LastCheck: v.passes.Last.Check.Load()}
	u.ComparesBLAKE3 = !v.store.Trusted() && v.store.Stats().Segments > 0
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
	s.UnpackedBytes += written(q.v)
	s.OpenFiles = int(q.v.content.Count.OpenFiles.Load())
	s.Remote = q.v.sharing.status(ctx)
	s.Unidentified.Files, s.Unidentified.More = q.v.ids.Pending()
	s.ResidentBytes = q.v.hot.Bytes()
	s.Ruled = control.Ruled{PolicyProblem: q.v.rules.Problem(), PinnedFiles: q.v.hot.Held(),
		PinnedBytes: q.v.hot.HeldBytes()}
	return s, nil
}
