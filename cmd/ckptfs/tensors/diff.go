package tensors

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/size"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func diffCmd(s Shell) *cobra.Command {
	summary := false
	var sample size.Flag
	cmd := &cobra.Command{
		Use:   "diff [flags] A B",
		Short: "Compare the tensors of two files, steps or runs",
		Long: `Compares the tensors of A and B: two files, steps or folders of one store. A run stands for its last complete step. A
file is compared with the file of the same name, or else of the same name with another ending: formats may differ. A
sharded set (by its index), a folder of torch.distributed.checkpoint and an item of Orbax count as one file each.
Tensors of equal hashes are not read.

For a changed tensor the command prints the share of elements that differ, the greatest difference, and the norm of the
difference divided by the norm of A's tensor. Files without tensors are compared as bytes.

--sample reads that much of each tensor that differs, spread over it, on either side: an estimate in less time. Of a
tensor that differs elsewhere it says that none is in the sample.`,
		Args: args.Two,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.LookTwo(cmd.Context(), args[0], args[1], func(c *control.Client, at *place.Place,
				other string) error {
				o := control.DiffOptions{A: at.Path, B: other, Sample: sample.Bytes}
				update, done := s.Progress("comparing")
				d, err := c.Diff(cmd.Context(), o, nil, update)
				done()
				if err != nil {
					return err
				}
				return s.Show(d, func(w io.Writer) {
					if summary {
						printDiffCounts(w, d)
					} else {
						printDiff(w, d)
					}
				})
			})
		},
	}
	cmd.Flags().Var(&sample, "sample", "read only so much of each tensor that differs, such as 1MiB")
	cmd.Flags().BoolVar(&summary, "summary", false, "print counts, and the tensors that changed most, without the lists")
	return cmd
}

// mostChanged is how many tensors a summary names.
const mostChanged = 3

// printDiffCounts is printDiff in a few lines.
func printDiffCounts(w io.Writer, d *control.Diff) {
	var measured []*control.TensorChange
	for i := range d.Changed {
		if c := &d.Changed[i]; c.RelNorm != nil && !math.IsNaN(float64(*c.RelNorm)) {
			measured = append(measured, c)
		}
	}
	slices.SortStableFunc(measured, func(a, b *control.TensorChange) int {
		return cmp.Compare(*b.RelNorm, *a.RelNorm)
	})
	if len(measured) > 0 {
		rows := [][]string{}
		for _, c := range measured[:min(len(measured), mostChanged)] {
			name := c.Name
			if len(d.Files) > 1 {
				name = c.File + ":" + name
			}
			rows = append(rows, []string{text.Printable(name), fmt.Sprintf("%.3g %%", 100*c.Share),
				text.Number(float64(*c.RelNorm))})
		}
		text.Table(w, []string{"CHANGED MOST", ">ELEMENTS", "|Δ|/|A|"}, rows)
	}
	if len(d.Others) > 0 {
		fmt.Fprintf(w, "%s without tensors differ\n", text.Plural(int64(len(d.Others)), "file"))
	}
	printDiffTotals(w, d)
}

func printDiff(w io.Writer, d *control.Diff) {
	for _, p := range d.Files {
		fmt.Fprintf(w, "%s  %s\n", text.Printable(p.A), text.Printable(p.B))
	}
	many := len(d.Files) > 1
	name := func(n, file string) string {
		if many {
			return text.Printable(file + ":" + n)
		}
		return text.Printable(n)
	}
	if len(d.Changed) > 0 {
		rows := make([][]string, len(d.Changed))
		for i := range d.Changed {
			c := &d.Changed[i]
			row := []string{name(c.Name, c.File), typeChange(c), shapeText(c.Shape), "", "",
				"compared as bytes"}
			if c.Missed() {
				row[5] = "none in the sample"
			} else if c.MaxAbs != nil {
				row[3] = fmt.Sprintf("%.3g %%", 100*c.Share)
				row[4], row[5] = text.Number(float64(*c.MaxAbs)), text.Number(float64(*c.RelNorm))
				if c.Special > 0 {
					row[5] += fmt.Sprintf(", %d not finite", c.Special)
				}
			}
			rows[i] = row
		}
		fmt.Fprintln(w)
		text.Table(w, []string{"CHANGED", "DTYPE", "SHAPE", ">ELEMENTS", ">MAX |Δ|", "|Δ|/|A|"}, rows)
	}
	if len(d.Reshaped) > 0 {
		rows := make([][]string, len(d.Reshaped))
		for i := range d.Reshaped {
			c := &d.Reshaped[i]
			note := ""
			if c.SameBytes {
				note = "the same bytes"
			}
			rows[i] = []string{name(c.Name, c.File), typeChange(c), shapeText(c.ShapeA),
				shapeText(c.Shape), note}
		}
		fmt.Fprintln(w)
		text.Table(w, []string{"RESHAPED", "DTYPE", "FROM", "TO", ""}, rows)
	}
	for _, part := range []struct {
		head string
		refs []control.TensorRef
	}{{"REMOVED", d.Removed}, {"ADDED", d.Added}} {
		if len(part.refs) > 0 {
			fmt.Fprintln(w)
			printRefs(w, part.head, part.refs, many)
		}
	}
	if len(d.Others) > 0 {
		rows := make([][]string, len(d.Others))
		for i, o := range d.Others {
			rows[i] = []string{text.Printable(o.Path), o.What}
		}
		fmt.Fprintln(w)
		text.Table(w, []string{"OTHER FILES", ""}, rows)
	}
	fmt.Fprintln(w)
	printDiffTotals(w, d)
}

func printDiffTotals(w io.Writer, d *control.Diff) {
	fmt.Fprintf(w, "%s equal (%s), %d changed, %d reshaped, %d added, %d removed; %s read\n", text.Plural(int64(d.Equal), "tensor"), text.Bytes(d.EqualBytes),
		len(d.Changed), len(d.Reshaped), len(d.Added), len(d.Removed), text.Bytes(d.ReadBytes))
}

func typeChange(c *control.TensorChange) string {
	if c.DTypeA == c.DType {
		return c.DType
	}
	return c.DTypeA + " → " + c.DType
}

func printRefs(w io.Writer, head string, refs []control.TensorRef, files bool) {
	rows := make([][]string, len(refs))
	for i := range refs {
		r := &refs[i]
		name := r.Name
		if files {
			name = r.File + ":" + name
		}
		rows[i] = []string{text.Printable(name), r.DType, shapeText(r.Shape), text.Bytes(r.Bytes)}
	}
	text.Table(w, []string{head, "DTYPE", "SHAPE", ">BYTES"}, rows)
}

func findCmd(s Shell) *cobra.Command {
	hash, like := "", ""
	cmd := &cobra.Command{
		Use:   "find (PATH --tensor HASH | --like FILE:TENSOR)",
		Short: "List the files that hold a tensor",
		Long: `Lists the tensors of the store whose content has HASH, which ` + "`ckptfs show --json`" + ` prints (8 digits are
enough), or whose content is that of TENSOR in FILE. Names, types and shapes may differ. Only packed files have hashes.

    ckptfs find --like /mnt/ckpt/runs/a/3/model.pt:encoder.0.weight
    ckptfs find /mnt/ckpt --tensor 1f2e3d4c`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o := control.FindOptions{Hash: hash}
			var where string
			switch {
			case hash != "" && like == "" && len(args) == 1:
				where = args[0]
			case hash == "" && like != "" && len(args) == 0:
				var err error
				if where, o.Tensor, err = place.Tensor(like); err != nil {
					return exit.Wrong(cmd, "--like: "+err.Error())
				}
			default:
				return exit.Wrong(cmd, "find takes a path with --tensor HASH, or --like FILE:TENSOR alone")
			}
			return s.Look(cmd.Context(), where, func(c *control.Client, at *place.Place) error {
				if o.Tensor != "" {
					o.Path = at.Path
				}
				f, err := c.Find(cmd.Context(), o)
				if err != nil {
					return err
				}
				if len(f.Tensors) == 0 {
					return control.NotFound("no packed file of %s has a tensor whose content has hash %s",
						at.Store, hash)
				}
				return s.Show(f, func(w io.Writer) {
					slices.SortStableFunc(f.Tensors,
						func(a, b control.TensorRef) int { return strings.Compare(a.File, b.File) })
					printRefs(w, "TENSOR", f.Tensors, true)
				})
			})
		},
	}
	cmd.Flags().StringVar(&hash, "tensor", "", "the content's hash, at least 8 hexadecimal digits")
	cmd.Flags().StringVar(&like, "like", "", "FILE:TENSOR, whose content is looked for")
	return cmd
}
