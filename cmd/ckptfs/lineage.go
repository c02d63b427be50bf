package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/rundir"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func (a *app) lineageCmd() *cobra.Command {
	dot := false
	cmd := &cobra.Command{
		Use:   "lineage PATH",
		Short: "Show which checkpoints a checkpoint comes from, and what of it is theirs",
		Long: `Prints the chain of parents of the model at PATH, a file or a step below runs/, and how many tensors and bytes of the
model each parent owns: it stored them first, and they never changed since. A model is a packed file with tensors in a
complete step. If there are several models at or below PATH, of each chain the parent, those that own something, and
the first are printed, and how many are left out between them.

The parent is the first of these: what lineage.json in the step's directory says ({"parent": "runs/a/3"}), or its
attribute user.parent; what the file was before it was written again; the step before in its run; and, marked as
inferred, the model that has half of its bytes. A removed model stays in the chain, marked as retired.`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), args[0], readPast, func(s *session) error {
				l, err := s.Lineage(cmd.Context(), s.place.path)
				if err != nil {
					return err
				}
				if dot && !a.json {
					text.LineageDot(a.out, l)
					return nil
				}
				return a.show(l, func(w io.Writer) { text.Lineage(w, l) })
			})
		},
	}
	cmd.Flags().BoolVar(&dot, "dot", false, "print a graph for Graphviz")
	return cmd
}

func (a *app) ancestorCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "ancestor A B",
		Short: "Print the most recent checkpoint that two come from",
		Long: `Prints the most recent common ancestor of two models, by their parents, and the latest model that owns tensors of both.
The two may differ. A and B are files, or steps with one model each.`,
		Args: func(cmd *cobra.Command, args []string) error { return wantArgs(cmd, args, 2) },
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTwo(cmd.Context(), args[0], args[1], func(s *session, other string) error {
				c, err := s.Ancestor(cmd.Context(), s.place.path, other)
				if err != nil {
					return err
				}
				return a.show(c, func(w io.Writer) {
					ancestor, owner := "none", "none"
					if c.Ancestor != nil {
						ancestor = text.Model(c.Ancestor)
					}
					if c.Owner != nil {
						owner = text.Model(c.Owner)
					}
					text.Pairs(w, "ancestor", ancestor, "common owner", owner)
				})
			})
		},
	}
}

func (a *app) ownerCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "owner FILE:TENSOR",
		Short: "Print which checkpoint first stored a tensor",
		Args:  onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, tensor, err := splitTensor(args[0])
			if err != nil {
				return &usageError{msg: err.Error(), cmd: cmd}
			}
			return a.with(cmd.Context(), file, readPast, func(s *session) error {
				o, err := s.Owner(cmd.Context(), s.place.path, tensor)
				if err != nil {
					return err
				}
				return a.show(o, func(w io.Writer) { fmt.Fprintln(w, text.Model(&o.Owner)) })
			})
		},
	}
}

func (a *app) retireCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "retire STEP…",
		Short: "Remove a step, and record that it was there",
		Long: `Removes the folder of STEP, in a run of a mount, and records durably that its models are retired. What other
checkpoints share with it stays readable. Programs that have its files open keep them. It stays in the lineage of the
models that come from it. The next prune frees the space. rm -r does the same, and is recorded a little later. Retiring
a step again does nothing.`,
		Args: somePaths,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, step := range args {
				if err := a.retire(cmd, step); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (a *app) retire(cmd *cobra.Command, arg string) error {
	abs, err := filepath.Abs(arg)
	if err != nil {
		return err
	}
	// The step may be gone: its run is looked for then.
	at, err := find(filepath.Dir(abs))
	if err != nil {
		return err
	}
	run, step := at.path, filepath.Base(abs)
	if at.mount == nil {
		return &exitError{exitNotStore, fmt.Errorf("%s: store %s is not mounted, and retire works on a mount: `ckptfs mount %[2]s MOUNTPOINT` first", arg, at.store)}
	}
	if name, ok := strings.CutPrefix(run, "runs/"); !ok || name == "" || strings.Contains(name, "/") ||
		strings.HasPrefix(step, ".") {
		return &exitError{exitUsage, fmt.Errorf("%s: no step: it is to be a folder in a run, in a folder below %s", arg, filepath.Join(at.mount.Mountpoint, "runs"))}
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return err
	}
	folder, err := rundir.Open(dir, at.device())
	if err != nil {
		return err
	}
	defer folder.Close()
	st, err := folder.Lstat(step)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	was := err == nil
	if was && !st.IsDir() && !st.Mode().IsRegular() {
		return &exitError{exitUsage, fmt.Errorf("%s is neither a folder nor a file: name a step, or a file of one", arg)}
	}
	if err := rundir.RemoveLeft(folder); err != nil {
		return err
	}
	return a.with(cmd.Context(), dir, readWrite, func(s *session) error {
		if was && !st.IsDir() {
			l, err := s.Steps(cmd.Context(), s.place.path)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(l.Steps, func(known control.Step) bool { return known.Step == step }) {
				return &exitError{exitUsage, fmt.Errorf("%s is a file, and no step of its run: ckptfs log lists the steps", arg)}
			}
		}
		var there []uint64
		if was {
			// What was just saved is to be known before it goes.
			if l, err := s.Lineage(cmd.Context(), s.place.path+"/"+step); err == nil {
				for i := range l.Models {
					there = append(there, l.Models[i].Seq)
				}
			}
			if err := rundir.RemoveStep(folder, step); err != nil {
				return err
			}
		}
		r, err := s.Retire(cmd.Context(), s.place.path+"/"+step)
		if err != nil {
			return err
		}
		if was { // what was there before, and written over or removed, was retired then
			r.Models = slices.DeleteFunc(r.Models,
				func(m control.Model) bool { return !slices.Contains(there, m.Seq) })
		}
		return a.show(r, func(w io.Writer) {
			switch {
			case was:
				fmt.Fprintf(w, "%s: removed; %s\n", text.Printable(r.Path), retiredText(len(r.Models)))
			case len(r.Models) > 0:
				fmt.Fprintf(w, "%s: retired already\n", text.Printable(r.Path))
			default:
				fmt.Fprintf(w, "%s: nothing is there\n", text.Printable(r.Path))
			}
		})
	})
}

// retiredText says how many models went with a step.
func retiredText(models int) string {
	if models == 0 {
		return "no model of it was known: it was not complete and packed"
	}
	return text.Plural(int64(models), "model") + " retired"
}
