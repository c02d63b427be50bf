package models

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"ckptfs/formats/deepspeed"
	fssteps "ckptfs/fs/steps"
)

// DeepSpeed's ZeRO keeps the weights in single precision among the optimizer's state, each rank its part. Of
// stage 3 nothing else has any; of stages 1 and 2 the files of model states have them in the precision of the
// training. So a file of all of them is made first, as zero_to_fp32 does, and the files of model states stay.

// errPartition is of a file that alone gives no weights, and without which there are none.
var errPartition = errors.New("it has a part of the weights, which DeepSpeed's ZeRO keeps with the optimizer's " +
	"state (forget --drop-optimizer --keep-last N RUN makes a file of all of them first)")

// isPartition tells by a tensor's name whether it is a part of the weights among optimizer state.
func isPartition(name string) bool {
	return strings.Contains(name, ".fp32_flat_groups") || strings.Contains(name, ".single_partition_of_fp32_groups")
}

// zero makes a file of the weights of a folder that ranks of ZeRO wrote, and removes the files of optimizer
// states. names are those of all its files. An error is that of the run: of a folder it is noted. remote are
// the names of files whose bytes are elsewhere: a folder that has one stays as it is.
func (d *dropper) zero(ctx context.Context, root *os.Root, step, rel string, names []string,
	remote map[string]bool) error {
	full := path.Join(d.run, rel)
	for name := range remote {
		if deepspeed.IsPart(name) {
			return nil
		}
	}
	for _, name := range names {
		if r := d.ruleOf(path.Join(full, name)); strings.HasSuffix(name, deepspeed.OptimizerSuffix) &&
			(r == nil || !d.loses(r, step)) {
			d.skip(full, "no rule takes "+name+": without the others it is of no use")
			return nil
		}
	}
	x, kept, err := openZero(root, rel, names)
	if err != nil {
		d.skip(full, err.Error())
		return ctx.Err()
	}
	weights := path.Join(rel, fssteps.DistributedWeights)
	out := dropped{File: full, DryRun: d.dry, Size: x.size, Weights: path.Join(d.run, weights),
		Kept: len(kept)}
	if out.Dropped, err = x.states(root); err == nil {
		err = d.dropZero(ctx, root, x, weights, kept, &out)
	}
	return d.note(ctx, &out, err)
}

// openZero finds out what a folder holds. kept are the shapes of the model's tensors, by name.
func openZero(root *os.Root, rel string, names []string) (
	x *distributed, kept map[string][]int64, err error) {
	x = &distributed{rel: rel, stays: true}
	for _, name := range names { // ascending
		switch {
		case !deepspeed.IsPart(name):
		case strings.HasSuffix(name, deepspeed.OptimizerSuffix):
			x.names = append(x.names, name)
		case x.said == "":
			x.said = name
		}
	}
	if x.said == "" {
		return nil, nil, fmt.Errorf("it has no file *%s: its weights cannot be computed", deepspeed.ModelSuffix)
	}
	f, err := openIn(root, path.Join(rel, x.said))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if x.meta, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	said, err := deepspeed.Parse(f, x.meta.Size())
	if err == nil && said.Model == nil {
		err = errors.New("it is no file of model states")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", x.said, err)
	}
	for _, name := range names {
		if !deepspeed.IsPart(name) {
			continue
		}
		st, err := root.Lstat(path.Join(rel, name))
		switch {
		case err != nil:
			return nil, nil, err
		case !st.Mode().IsRegular():
			return nil, nil, fmt.Errorf("%q is no file", name)
		case !asOpen(st, x.meta):
			return nil, nil, errNotAsOpen(name, x.said)
		case slices.Contains(x.names, name):
			x.parts = append(x.parts, st)
			x.size += st.Size()
		}
	}
	return x, shapesOf(said.Model), nil
}

// shapesOf are those of the tensors that a model has, by name.
func shapesOf(m *deepspeed.Model) map[string][]int64 {
	kept := map[string][]int64{}
	for _, group := range m.Groups {
		for _, p := range group {
			kept[p.Name] = p.Shape
		}
	}
	for i := range m.Buffers {
		kept[m.Buffers[i].Name] = m.Buffers[i].Shape
	}
	for i := range m.Frozen {
		kept[m.Frozen[i].Name] = m.Frozen[i].Shape
	}
	for _, s := range m.Shared {
		if shape, is := kept[s[1]]; is {
			kept[s[0]] = shape
		}
	}
	return kept
}

// states counts the tensors of optimizer state.
func (x *distributed) states(root *os.Root) (n int, err error) {
	for _, name := range x.names {
		f, err := openIn(root, path.Join(x.rel, name))
		if err != nil {
			return 0, err
		}
		_, l, err := layoutOf(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return 0, err
		}
		for i := range l.Tensors {
			if !isPartition(l.Tensors[i].Name) {
				n++
			}
		}
	}
	return n, nil
}

// dropZero makes the file of weights and removes the files of optimizer states. Of a folder that lacks some
// of them an interrupted command has made it.
func (d *dropper) dropZero(ctx context.Context, root *os.Root, x *distributed, weights string,
	kept map[string][]int64, out *dropped) error {
	src, plan, err := d.consolidated(ctx, x, kept)
	if err == nil {
		defer src.Close()
		return d.writeFirst(ctx, root, x, weights, src, plan, out)
	}
	if holds(root, weights, x.meta, kept) != nil {
		return err
	}
	if d.dry {
		return nil
	}
	if err := x.same(root); err != nil {
		return err
	}
	return x.remove(root)
}
