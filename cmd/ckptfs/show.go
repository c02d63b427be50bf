package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"ckptfs/fs/control"
)

func (a *app) showCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "show FILE",
		Short: "The tensors of a file, and where else they are",
		Long: `Prints what is known of one file, and its tensors in the order in which they lie in it: name, element type, shape,
bytes, and the other files that hold the same tensor.`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), args[0], readOnly, func(s *session) error {
				f, err := s.Show(cmd.Context(), s.place.path)
				if err != nil {
					return err
				}
				if f.Tensors == nil {
					f.Tensors = []control.Tensor{}
				}
				return a.show(f, func(w io.Writer) { printFile(w, f) })
			})
		},
	}
}

func printFile(w io.Writer, f *control.File) {
	state := f.State
	if f.View {
		state += ", a view"
	}
	stored := ""
	if f.State != control.StateResident {
		stored = bytesText(f.Stored) + ", shared parts counted in full"
	}
	pairs(w,
		"file", printable(f.Path),
		"format", f.Format,
		"state", state,
		"size", bytesText(f.Size),
		"stored", stored,
		"manifest", f.Manifest,
		"artifact", f.Artifact,
		"tensors", humanize.Comma(int64(len(f.Tensors))),
	)
	if len(f.Tensors) == 0 {
		return
	}
	rows := make([][]string, 0, len(f.Tensors))
	for i := range f.Tensors {
		t := &f.Tensors[i]
		rows = append(rows, []string{printable(t.Name), t.DType, shapeText(t.Shape), bytesText(t.Bytes), sharedText(t)})
	}
	fmt.Fprintln(w)
	table(w, []string{"NAME", "DTYPE", "SHAPE", ">BYTES", "SHARED WITH"}, rows)
}

func shapeText(shape []int64) string {
	dims := make([]string, len(shape))
	for i, d := range shape {
		dims[i] = strconv.FormatInt(d, 10)
	}
	return "[" + strings.Join(dims, ", ") + "]"
}

// sharedText is the first of the other files, and how many more there are.
func sharedText(t *control.Tensor) string {
	n := max(t.Shared, len(t.SharedWith))
	switch {
	case n == 0:
		return ""
	case len(t.SharedWith) == 0:
		return plural(int64(n), "file")
	case n == 1:
		return printable(t.SharedWith[0])
	}
	return fmt.Sprintf("%s and %s more", printable(t.SharedWith[0]), humanize.Comma(int64(n-1)))
}
