package models

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/rundir"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func lineageCmd(s Shell) *cobra.Command {
	dot := false
	cmd := &cobra.Command{
		Use:   "lineage PATH",
		Short: "Show which checkpoints a checkpoint comes from, and what of it is theirs",
		Long: `Prints the chain of parents of the model at PATH, a file or a step below runs/, and how many tensors and bytes of the
model each parent owns: it stored them first, and they never changed since. A model is a packed file with tensors in a
complete step. If there are several models at or below PATH, of each chain the parent, those that own something, and
the first are printed, and how many are left out between them.

The parent is the first of these: what lineage.json in the step's directory says ({"parent": "runs/a/3"}), or its
attribute user.parent; what the file was before it was written again; the step before in its run; the model that its
tensors are stored as a function of (reproduced); and, marked as inferred, the model that has half of its bytes. A
removed model stays in the chain, marked as retired.

Of a file whose tensors follow from those of others, in runs/ or not, it prints how: "Q4_K of X", "merge 0.7 A + 0.3 B",
"same weights as X"; and which share of its bytes follows. It looks at 16 files at or below PATH.`,
		Args: args.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.LookPast(cmd.Context(), args[0], func(c *control.Client, at *place.Place) error {
				l, err := c.Lineage(cmd.Context(), at.Path)
				if err != nil {
					return err
				}
				if dot && !s.JSON() {
					text.LineageDot(s.Out(), l)
					return nil
				}
				return s.Show(l, func(w io.Writer) { text.Lineage(w, l) })
			})
		},
	}
	cmd.Flags().BoolVar(&dot, "dot", false, "print a graph for Graphviz")
	return cmd
}

func ancestorCmd(s Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "ancestor A B",
		Short: "Print the most recent checkpoint that two come from",
		Long: `Prints the most recent common ancestor of two models, by their parents, and the latest model that owns tensors of both.
The two may differ. A and B are files, or steps with one model each.`,
		Args: args.Two,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.LookTwo(cmd.Context(), args[0], args[1], func(c *control.Client, at *place.Place,
				other string) error {
				common, err := c.Ancestor(cmd.Context(), at.Path, other)
				if err != nil {
					return err
				}
				return s.Show(common, func(w io.Writer) {
					ancestor, owner := "none", "none"
					if common.Ancestor != nil {
						ancestor = text.Model(common.Ancestor)
					}
					if common.Owner != nil {
						owner = text.Model(common.Owner)
					}
					text.Pairs(w, "ancestor", ancestor, "common owner", owner)
				})
			})
		},
	}
}

func ownerCmd(s Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "owner FILE:TENSOR",
		Short: "Print which checkpoint first stored a tensor",
		Args:  args.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, tensor, err := place.Tensor(args[0])
			if err != nil {
				return exit.Wrong(cmd, err.Error())
			}
			return s.LookPast(cmd.Context(), file, func(c *control.Client, at *place.Place) error {
				o, err := c.Owner(cmd.Context(), at.Path, tensor)
				if err != nil {
					return err
				}
				return s.Show(o, func(w io.Writer) { fmt.Fprintln(w, text.Model(&o.Owner)) })
			})
		},
	}
}

func retireCmd(s Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "retire STEP…",
		Short: "Remove a step, and record that it was there",
		Long: `Removes the folder of STEP, in a run of a mount, and records durably that its models are retired. What other
checkpoints share with it stays readable. Programs that have its files open keep them. It stays in the lineage of the
models that come from it. The next prune frees the space. rm -r does the same, and is recorded a little later. Retiring
a step again does nothing.`,
		Args: args.Some,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, step := range args {
				if err := retire(cmd, s, step); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func retire(cmd *cobra.Command, s Shell, arg string) error {
	abs, err := filepath.Abs(arg)
	if err != nil {
		return err
	}
	// The step may be gone: its run is looked for then.
	at, err := place.Find(filepath.Dir(abs))
	if err != nil {
		return err
	}
	run, step := at.Path, filepath.Base(abs)
	if at.Mount == nil {
		return exit.With(exit.NotStore, fmt.Errorf("%s: store %s is not mounted, and retire works on a mount: `ckptfs mount %s MOUNTPOINT` first", arg, at.Store, text.Word(at.Store)))
	}
	if name, ok := strings.CutPrefix(run, "runs/"); !ok || name == "" || strings.Contains(name, "/") ||
		strings.HasPrefix(step, ".") {
		return exit.With(exit.Usage, fmt.Errorf("%s: no step: it is to be a folder in a run, in a folder below %s", arg, filepath.Join(at.Mount.Mountpoint, "runs")))
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return err
	}
	folder, err := rundir.Open(dir, at.Device())
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
		return exit.With(exit.Usage, fmt.Errorf("%s is neither a folder nor a file: name a step, or a file of one", arg))
	}
	if err := rundir.RemoveLeft(folder); err != nil {
		return err
	}
	return s.Change(cmd.Context(), dir, func(c *control.Client, at *place.Place) error {
		if was && !st.IsDir() {
			l, err := c.Steps(cmd.Context(), at.Path)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(l.Steps, func(known control.Step) bool { return known.Step == step }) {
				return exit.With(exit.Usage, fmt.Errorf("%s is a file, and no step of its run: ckptfs log lists the steps", arg))
			}
		}
		var there []uint64
		if was {
			// What was just saved is to be known before it goes.
			if l, err := c.Lineage(cmd.Context(), at.Path+"/"+step); err == nil {
				for i := range l.Models {
					there = append(there, l.Models[i].Seq)
				}
			}
			if err := rundir.RemoveStep(folder, step); err != nil {
				return err
			}
		}
		r, err := c.Retire(cmd.Context(), at.Path+"/"+step)
		if err != nil {
			return err
		}
		if was { // what was there before, and written over or removed, was retired then
			r.Models = slices.DeleteFunc(r.Models,
				func(m control.Model) bool { return !slices.Contains(there, m.Seq) })
		}
		if !was && len(r.Models) == 0 {
			return control.NotFound("%s: nothing is there, and no model of it was known", r.Path)
		}
		return s.Show(r, func(w io.Writer) {
			switch {
			case was:
				fmt.Fprintf(w, "%s: removed; %s\n", text.Printable(r.Path), retiredText(len(r.Models)))
			default:
				fmt.Fprintf(w, "%s: retired already\n", text.Printable(r.Path))
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
