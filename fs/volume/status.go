package volume

import (
	"context"
	"os"
	"slices"
	"sort"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// Status is what the volume is doing now.
func (v *Volume) Status(ctx context.Context) (*control.Status, error) {
	s := &control.Status{
		Store: v.dir, Mountpoint: v.mountpoint, Mode: v.mode, ModeReason: v.modeReason, PID: os.Getpid(),
		Started: v.started, HotSize: v.hot.max, Recovery: v.recovery, Packing: []string{}, Failures: v.failures(),
	}
	v.models.refresh(ctx, v)
	if said := v.models.said.Load(); said != nil {
		s.Sidecars = (*said)[:min(len(*said), maxShared)]
	}
	if q := v.models.refused.Load(); q != nil {
		s.Sidecars = append(slices.Clip(s.Sidecars), *q)
	}
	if s.Mode == "" {
		s.Mode = control.ModeUnmounted
	}
	v.packer.mu.Lock()
	s.MaxUnpacked, s.WaitingCloses = v.packer.backlog.max, v.packer.backlog.waiting
	var busy []*Node
	for n := range v.packer.busy {
		v.ref(n)
		busy = append(busy, n)
	}
	waiting := append([]*Node(nil), v.packer.queue...)
	for _, n := range waiting {
		v.ref(n)
	}
	var delayed []*Node // failed, or mapped for writing
	for n := range v.packer.delayed {
		if !slices.Contains(waiting, n) && !v.packer.busy[n] {
			v.ref(n)
			delayed = append(delayed, n)
		}
	}
	since := v.packer.backlog.since()
	v.packer.mu.Unlock()
	if !since.IsZero() {
		s.PackingWaits = v.courtesy.why(since.Add(patientFor))
	}
	for _, n := range delayed {
		s.UnpackedBytes += v.rawSize(n)
		v.unref(n, 1)
	}
	for _, n := range busy {
		s.Packing = append(s.Packing, v.Path(n))
		s.UnpackedBytes += v.rawSize(n)
		v.unref(n, 1)
	}
	sort.Strings(s.Packing)
	for _, n := range waiting {
		s.Queue.Files++
		s.Queue.Bytes += v.rawSize(n)
		v.unref(n, 1)
	}
	s.UnpackedBytes += s.Queue.Bytes
	v.eachNode(func(n *Node) {
		if f := n.file; f != nil {
			f.mu.Lock()
			if f.pass+f.cached+f.direct > 0 {
				s.OpenFiles++
			}
			if f.writers > 0 {
				s.UnpackedBytes += v.rawSizeLocked(n)
			}
			f.mu.Unlock()
		}
	})
	s.Unidentified.Files, s.Unidentified.More = v.ids.waits()
	v.hot.mu.Lock()
	s.ResidentBytes = v.hot.bytes
	v.hot.mu.Unlock()
	return s, nil
}

// rawSize is the number of a file's bytes that are in place.
func (v *Volume) rawSize(n *Node) int64 {
	n.file.mu.Lock()
	defer n.file.mu.Unlock()
	return v.rawSizeLocked(n)
}

func (v *Volume) rawSizeLocked(n *Node) int64 {
	var st unix.Stat_t
	if v.load(n) != nil || n.file.rec.Hollow || v.statInode(n, &st) != nil {
		return 0
	}
	return st.Size
}
