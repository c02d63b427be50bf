package inspect

import (
	"context"
	"encoding/binary"
	"errors"
	"path"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/control"
)

// Log lists the steps of a run, with what each added to those before it.
func (ins *Inspector) Log(ctx context.Context, p string) (*control.RunLog, error) {
	out, err := ins.steps.List(ctx, p)
	if err != nil {
		return nil, err
	}
	l := &logger{ins: ins, objects: map[cas.Hash]int{}, chunks: map[uint64]int32{}}
	for i := range out.Steps {
		st := &out.Steps[i]
		if err := l.step(ctx, i, path.Join(p, st.Step), st); err != nil {
			return nil, err
		}
		best, bytes := -1, int64(0)
		for j, n := range l.shared {
			if n > bytes || n == bytes && best >= 0 && j > best {
				best, bytes = j, n
			}
		}
		if best >= 0 {
			st.SharedWith, st.SharedBytes = out.Steps[best].Step, bytes
		}
	}
	return out, nil
}

// logger adds up what a step shares with those before it. An object, or a chunk, belongs to the last step
// that had it.
type logger struct {
	ins     *Inspector
	objects map[cas.Hash]int // digest → the last step that had it, known to be whole
	// by the first 8 bytes of their hashes, as good as all for a sum: a run may have many millions
	chunks map[uint64]int32
	shared map[int]int64 // of the step at hand: bytes by the step that had them last
}

func (l *logger) step(ctx context.Context, i int, p string, st *control.Step) error {
	l.shared = map[int]int64{}
	err := l.ins.files.Walk(ctx, p, func(_ string, n File) error {
		info, err := n.Info()
		if err == unix.ENOENT {
			return nil
		}
		if err != nil {
			return err
		}
		h, err := n.Manifest()
		if err != nil {
			return err
		}
		if h.IsZero() {
			st.PlainBytes += info.Size
			return nil
		}
		m, err := l.ins.store.Manifest(h)
		if errors.Is(err, cas.ErrCorrupt) || errors.Is(err, cas.ErrNotFound) {
			st.Problem = "a file's manifest cannot be read: see check"
			return nil
		}
		if err != nil {
			return err
		}
		for _, o := range m.Objects {
			if j, ok := l.objects[o.Digest]; ok {
				if j != i {
					l.shared[j] += o.Len
				}
				l.objects[o.Digest] = i
				continue
			}
			spans, err := o.Spans(l.ins.store.Get)
			if errors.Is(err, cas.ErrCorrupt) || errors.Is(err, cas.ErrNotFound) {
				st.Problem = "a file's chunk list cannot be read: see check"
				continue
			}
			if err != nil {
				return err
			}
			for _, s := range spans {
				k := binary.LittleEndian.Uint64(s.Hash[:])
				if j, ok := l.chunks[k]; !ok {
					st.NewBytes += int64(s.Len)
				} else if int(j) != i {
					l.shared[int(j)] += int64(s.Len)
				}
				l.chunks[k] = int32(i)
			}
			l.objects[o.Digest] = i
		}
		return nil
	})
	if errors.Is(err, unix.ENOENT) {
		return nil // gone meanwhile
	}
	return err
}
