package inspect

import (
	"cmp"
	"context"
	"slices"

	"ckptfs/fs/control"
)

// passTensors is how many tensors are described at a time. Each takes some 500 bytes until it is told, and as
// much again where 16 files share it.
const passTensors = 1 << 15

// listing is arrays in the order in which they are told. One of a file is made when it is asked for.
type listing struct {
	n  int
	at func(k int) array
}

func listed(arrays []array) listing {
	return listing{len(arrays), func(k int) array { return arrays[k] }}
}

// inOrder lists a file's arrays as they lie in it.
func inOrder(f *file) listing {
	if f.layout.Partial {
		arrays := arraysOf(f)
		slices.SortStableFunc(arrays, func(a, b array) int { return cmp.Compare(a.offset(), b.offset()) })
		return listed(arrays)
	}
	sorted := true // as most writers have them
	for i := 1; i < len(f.layout.Tensors) && sorted; i++ {
		sorted = f.offset(i-1) <= f.offset(i)
	}
	if sorted {
		return listing{len(f.layout.Tensors), func(i int) array {
			return one(f, i, f.layout.Tensors[i].Name)
		}}
	}
	order := make([]int32, len(f.layout.Tensors))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(i, j int32) int {
		return cmp.Compare(f.offset(int(i)), f.offset(int(j)))
	})
	return listing{len(order), func(k int) array {
		i := int(order[k])
		return one(f, i, f.layout.Tensors[i].Name)
	}}
}

// those are the arrays of l that only accepts; nil: all.
func (l listing) those(only func(a *array) bool) listing {
	if only == nil {
		return l
	}
	var of []int32
	for k := range l.n {
		if a := l.at(k); only(&a) {
			of = append(of, int32(k))
		}
	}
	return listing{len(of), func(k int) array { return l.at(int(of[k])) }}
}

// tell describes the arrays of l, which lie in the files self, and tells of them in passes.
func (ins *Inspector) tell(ctx context.Context, path string, l listing, self []File, stats bool,
	tensors control.Passes, progress func(control.Progress)) error {
	var done, total int64
	if stats && progress != nil {
		for k := range l.n {
			a := l.at(k)
			total += statsBytes(&a)
		}
	}
	report := func(p control.Progress) {
		if progress != nil {
			p.DoneBytes, p.TotalBytes = p.DoneBytes+done, total
			progress(p)
		}
	}
	for from := 0; from < l.n; from += passTensors {
		arrays := make([]array, min(passTensors, l.n-from))
		for k := range arrays {
			arrays[k] = l.at(from + k)
		}
		out := describeArrays(arrays)
		if err := ins.findShared(ctx, out, self...); err != nil {
			return err
		}
		if l.n <= maxStoredAs {
			if err := ins.storedAs(ctx, arrays, out); err != nil {
				return err
			}
		}
		if stats {
			if err := ins.arrayStats(ctx, path, arrays, out, report); err != nil {
				return err
			}
			for k := range arrays {
				done += statsBytes(&arrays[k])
			}
		}
		if err := tensors(out); err != nil {
			return err
		}
	}
	return nil
}
