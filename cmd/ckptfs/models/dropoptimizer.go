package models

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/fs/control"
	fssteps "ckptfs/fs/steps"
	"ckptfs/fs/view"
	"ckptfs/index/runs"
)

// weightsSuffix ends the name of the file that holds what a checkpoint has besides optimizer state.
const weightsSuffix = fssteps.Weights

// Why no weights are made of a checkpoint.
var (
	errNoState   = errors.New("no optimizer state is in it")
	errOnlyState = errors.New("nothing but optimizer state is in it: rm removes it")
	errNoTensors = errors.New("no tensors are known in it")
	errUnnamed   = errors.New("it holds tensors that have no name here")
)

// optimizerNames are what programs call the part of a checkpoint that is the optimizer's. It is a list and no
// pattern, since what is dropped is gone: a layer may well be called optimus.
var optimizerNames = map[string]bool{
	"optim": true, "optims": true, "optimizer": true, "optimizers": true, "optim_state": true,
	"optim_state_dict": true,
	"optimizer_state":  true, "optimizer_states": true, "optimizer_state_dict": true, "optimizer_weights": true, "opt_state": true,
}

// stateNames are what optimizers keep for each parameter, below state, as torch.optim and its relatives call
// it.
var stateNames = map[string]bool{
	"exp_avg": true, "exp_avg_sq": true, "exp_avg_diff": true, "max_exp_avg_sq": true,
	"exp_inf": true, "step": true,
	"momentum_buffer": true, "square_avg": true, "grad_avg": true, "acc_delta": true, "sum": true,
}

// isOptimizerState tells by a tensor's name whether it belongs to an optimizer.
func isOptimizerState(name string) bool {
	parts := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return r == '.' ||
			r == '/' || r == ':'
	})
	for _, p := range parts {
		if optimizerNames[p] {
			return true
		}
	}
	return len(parts) > 2 && parts[0] == "state" && stateNames[parts[len(parts)-1]]
}

// dropped is what dropOptimizer prints.
type dropped struct {
	File    string `json:"file"`
	Weights string `json:"weights"` // the new file
	DryRun  bool   `json:"dry_run"`
	Kept    int    `json:"tensors_kept"`
	Dropped int    `json:"tensors_dropped"`
	Size    int64  `json:"size"`         // bytes before
	NewSize int64  `json:"weights_size"` // bytes after
}

// ofLast is an error if a file is of the last step that its run can be gone on from. What lies in no mount
// has no runs.
func ofLast(ctx context.Context, s Shell, file string) error {
	at, err := place.Find(file)
	if err != nil || at.Mount == nil {
		return nil
	}
	run, step, _ := fssteps.In(at.Path)
	if step == "" {
		return nil
	}
	return s.Look(ctx, file, func(c *control.Client, _ *place.Place) error {
		run = runs.Dir + "/" + run
		l, err := c.Steps(ctx, run)
		if err != nil || l.Last != step {
			return err
		}
		return fmt.Errorf("%s: it is of %s, the last step that %s can be gone on from; it stays as it is: "+
			"--even-last drops it all the same", file, l.Last, run)
	})
}

// dropOptimizer puts the tensors of a checkpoint that are no optimizer state into a new file beside it, and
// then removes the checkpoint. even says that its step may be the last that the run can be gone on from.
func dropOptimizer(ctx context.Context, s Shell, path string, dry, even bool) error {
	if !even {
		if err := ofLast(ctx, s, path); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would wait
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return exit.With(exit.Usage, fmt.Errorf("%s: not a file: name the checkpoint's files", path))
	}
	l, err := detect.Detect(f, st.Size())
	if err != nil {
		return err
	}
	out := dropped{File: path, DryRun: dry, Size: st.Size(), Weights: strings.TrimSuffix(path,
		filepath.Ext(path)) + weightsSuffix}
	kept, err := withoutOptimizer(l, &out)
	if err != nil {
		return fmt.Errorf("%s: %w; it stays as it is", path, err)
	}
	plan, err := view.Safetensors(l.Regions, kept)
	if err != nil {
		return fmt.Errorf("%s: the weights cannot be written as safetensors: %w; it stays as it is", path, err)
	}
	out.NewSize = plan.Size()
	if !dry {
		update, done := s.Progress("writing")
		err := writeWeights(ctx, out.Weights, st.Mode().Perm(), f, plan, update)
		done()
		if err != nil {
			return fmt.Errorf("%s: %w; %s stays as it is", out.Weights, err, path)
		}
		if now, err := os.Lstat(path); err != nil || now.ModTime() != st.ModTime() ||
			now.Size() != st.Size() || !os.SameFile(now, st) {
			err := errors.Join(errors.New("it was written to during the copy and stays as it is"), os.Remove(out.Weights))
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return s.Show(out, func(w io.Writer) {
		verb := "is replaced by"
		if dry {
			verb = "would be replaced by"
		}
		fmt.Fprintf(w, "%s (%s) %s the new file %s (%s): %s kept, %d of optimizer state dropped; whatever else was in it is gone\n",
			text.Printable(path), text.Bytes(out.Size), verb, text.Printable(out.Weights),
			text.Bytes(out.NewSize), text.Plural(int64(out.Kept), "tensor"), out.Dropped)
	})
}

// withoutOptimizer returns the tensors that stay.
func withoutOptimizer(l *formats.Layout, out *dropped) ([]formats.Tensor, error) {
	if len(l.Tensors) == 0 {
		return nil, errNoTensors
	}
	if l.Partial {
		return nil, errUnnamed
	}
	var kept []formats.Tensor
	for _, t := range l.Tensors {
		if isPartition(t.Name) {
			return nil, errPartition
		}
		if !isOptimizerState(t.Name) {
			kept = append(kept, t)
		}
	}
	out.Kept, out.Dropped = len(kept), len(l.Tensors)-len(kept)
	switch {
	case out.Dropped == 0:
		return nil, errNoState
	case len(kept) == 0:
		return nil, errOnlyState
	}
	return kept, nil
}

// writeWeights makes the new file, whole and durable before it has its name.
func writeWeights(ctx context.Context, path string, mode os.FileMode, src io.ReaderAt,
	plan *view.View, update func(control.Progress)) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return errors.New("there is a file of that name: move it away first")
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".weights-*")
	if err != nil {
		return err
	}
	defer func() {
		tmp.Close()
		if err != nil {
			os.Remove(tmp.Name())
		}
	}()
	err = eachPart(ctx, plan, src, func(p []byte, off int64) error {
		if _, err := tmp.Write(p); err != nil {
			return err
		}
		if update != nil {
			update(control.Progress{DoneBytes: off + int64(len(p)), TotalBytes: plan.Size()})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := errors.Join(tmp.Chmod(mode), tmp.Sync()); err != nil {
		return err
	}
	if err := unix.Renameat2(unix.AT_FDCWD, tmp.Name(), unix.AT_FDCWD, path,
		unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
