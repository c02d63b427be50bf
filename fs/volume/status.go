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

// Status is what the volume is doing now.
func (v *Volume) Status(ctx context.Context) (*control.Status, error) {
	s := &control.Status{
		Store: v.dir, Mountpoint: v.mountpoint, Mode: v.mode, ModeReason: v.modeReason, PID: os.Getpid(),
		Started: v.started, HotSize: v.hot.Max(), Recovery: v.recovery, Packing: []string{},
		Failures: failures(v.queue.Failures, v.hot.Failures),
	}
	v.models.Refresh(ctx)
	if said := v.models.Problems(); said != nil {
		shown := min(len(said), maxSidecars)
		s.Sidecars, s.MoreSidecars = said[:shown], len(said)-shown
	}
	if refused := v.models.Refused(); refused != "" {
		s.Sidecars = append(slices.Clip(s.Sidecars), refused)
	}
	if s.Mode == "" {
		s.Mode = control.ModeUnmounted
	}
	q := v.queue.Status()
	s.MaxUnpacked, s.WaitingCloses, s.PackingWaits = q.MaxUnpacked, q.WaitingCloses, q.Waits
	for f, stage := range v.queue.Pending() {
		size := f.Unpacked()
		s.UnpackedBytes += size
		switch stage {
		case queue.Packing:
			s.Packing = append(s.Packing, f.Path())
		case queue.Queued:
			s.Queue.Files++
			s.Queue.Bytes += size
		}
		f.Unpin()
	}
	sort.Strings(s.Packing)
	v.names.Each(func(n *names.Node) {
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
	s.Unidentified.Files, s.Unidentified.More = v.ids.Pending()
	s.ResidentBytes = v.hot.Bytes()
	return s, nil
}
