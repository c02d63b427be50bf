package tensors

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func showCmd(s Shell) *cobra.Command {
	var o control.InspectOptions
	c := &cobra.Command{
		Use:   "show PATH",
		Short: "List the tensors of a file, and the files that share them",
		Long: `Prints what is known of a file, then its tensors in the order in which they lie in it: name, element type, shape,
bytes, and the other files that hold the same tensor. The artifact id names the set of tensors, whatever the format. It
is computed for files with up to 256 MiB of tensors, and with --artifact for any.

A tensor that is computed of others, or stored as a difference, has how in the column "stored as": "Q4_K of FILE:TENSOR,
scales 5 %" if it was quantised from that one, and 5 % of its bytes are scales that do not follow. Nothing is said of
more than 32,768 tensors.

--stats reads all tensors, on all cores, and prints the least, greatest and mean of their finite elements, and how many
elements are NaN or infinite.

PATH may be the index of a sharded set (.safetensors.index.json, .bin.index.json, also of a variant): the tensors of all
its files are listed. It may be a folder with such a set, with a checkpoint of torch.distributed.checkpoint (named as
in .metadata), or with arrays that Orbax wrote (named by the keys of the tree).`,
		Args: args.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Look(cmd.Context(), args[0], func(c *control.Client, at *place.Place) error {
				f, err := inspect(cmd.Context(), s, c, at.Path, o)
				if err != nil {
					return err
				}
				if f.Tensors == nil {
					f.Tensors = []control.Tensor{}
				}
				return s.Show(f, func(w io.Writer) { printFile(w, f) })
			})
		},
	}
	c.Flags().BoolVar(&o.Stats, "stats", false, "read the tensors, and print the range and mean of their elements")
	c.Flags().BoolVar(&o.Artifact, "artifact", false, "compute the artifact id, however large the file is")
	return c
}

// inspect asks a daemon of any version when nothing has to be read.
func inspect(ctx context.Context, s Shell, c *control.Client, path string,
	o control.InspectOptions) (*control.File, error) {
	if o == (control.InspectOptions{}) {
		return c.Show(ctx, path, nil)
	}
	update, done := s.Progress("reading")
	defer done()
	return c.Inspect(ctx, path, o, nil, update)
}

func printFile(w io.Writer, f *control.File) {
	state := f.State
	if f.View {
		state += ", a view"
	}
	stored := ""
	if f.State == control.StatePacked || f.State == control.StateResident {
		stored = text.Bytes(f.Stored) + "; parts shared with other files are counted in full"
	}
	text.Pairs(w,
		"file", text.Printable(f.Path),
		"format", f.Format,
		"state", state,
		"size", text.Bytes(f.Size),
		"stored", stored,
		"manifest", f.Manifest,
		"artifact", f.Artifact,
		"tensors", humanize.Comma(int64(len(f.Tensors))),
	)
	for _, note := range f.Notes {
		fmt.Fprintln(w, text.Printable(note))
	}
	if len(f.Tensors) == 0 {
		return
	}
	stats, derived := false, false
	for i := range f.Tensors {
		stats = stats || f.Tensors[i].Stats != nil
		derived = derived || f.Tensors[i].StoredAs != nil
	}
	head := []string{"NAME", "DTYPE", "SHAPE", ">BYTES"}
	if stats {
		head = append(head, ">MIN", ">MAX", ">MEAN", ">NAN", ">INF")
	}
	rows := make([][]string, 0, len(f.Tensors))
	for i := range f.Tensors {
		t := &f.Tensors[i]
		row := []string{text.Printable(t.Name), t.DType, shapeText(t.Shape), text.Bytes(t.Bytes)}
		if t.Pieces > 0 {
			row[2] += fmt.Sprintf(" in %d pieces", t.Pieces)
		}
		if stats {
			row = append(row, statsText(t.Stats)...)
		}
		if derived {
			row = append(row, storedText(f, t))
		}
		rows = append(rows, append(row, sharedText(t)))
	}
	if derived {
		head = append(head, "STORED AS")
	}
	fmt.Fprintln(w)
	text.Table(w, append(head, "SHARED WITH"), rows)
}

// statsText is a tensor's columns of --stats.
func statsText(s *control.TensorStats) []string {
	if s == nil || s.Count == 0 {
		return []string{"", "", "", "", ""}
	}
	n := func(x control.Number) string { return text.Number(float64(x)) }
	return []string{n(s.Min), n(s.Max), n(s.Mean), humanize.Comma(s.NaN), humanize.Comma(s.Inf)}
}

func shapeText(shape []int64) string {
	dims := make([]string, len(shape))
	for i, d := range shape {
		dims[i] = strconv.FormatInt(d, 10)
	}
	return "[" + strings.Join(dims, ", ") + "]"
}

// storedText is how a tensor is stored; "" of one that other files have: as it is there, which SHARED WITH
// tells. Of a folder's files some may not be packed.
func storedText(f *control.File, t *control.Tensor) string {
	switch {
	case t.StoredAs != nil:
		return text.Printable(t.StoredAs.String())
	case t.Bytes > 0 && t.Shared == 0 && len(t.SharedWith) == 0 &&
		(f.State == control.StatePacked || f.State == control.StateResident):
		return "alone"
	}
	return ""
}

// sharedText is the first of the other files, and how many more there are.
func sharedText(t *control.Tensor) string {
	n := max(t.Shared, len(t.SharedWith))
	switch {
	case n == 0:
		return ""
	case len(t.SharedWith) == 0:
		return text.Plural(int64(n), "file")
	case n == 1:
		return text.Printable(t.SharedWith[0])
	}
	return fmt.Sprintf("%s and %s more", text.Printable(t.SharedWith[0]), humanize.Comma(int64(n-1)))
}
