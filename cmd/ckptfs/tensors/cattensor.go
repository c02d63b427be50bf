package tensors

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/fs/control"
)

func catTensorCmd(s Shell) *cobra.Command {
	var npy bool
	c := &cobra.Command{
		Use:   "cat-tensor FILE TENSOR | FILE:TENSOR",
		Short: "Write one tensor to standard output",
		Long: `Writes the elements of one tensor, named as ` + "`ckptfs show`" + ` prints it, to standard output: row-major,
little-endian, without gaps, whatever the file's format and state. --npy writes a file that NumPy loads (docs/views.md
lists types that NumPy lacks). Only the tensor's own chunks are read. FILE may be whatever show lists: also the index of
a sharded set, or a folder with a set.

    ckptfs cat-tensor /mnt/ckpt/runs/a/7/model.pt fc.weight --npy > fc.weight.npy

In a mount the same bytes are in .ckptfs/tensors/FILE/TENSOR.npy.`,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) == 1 {
				return nil
			}
			return args.Two(cmd, given)
		},
		RunE: func(cmd *cobra.Command, given []string) error {
			file, name, err := "", "", error(nil)
			if len(given) == 2 {
				file, name = given[0], given[1]
			} else if file, name, err = place.Tensor(given[0]); err != nil {
				return exit.Wrong(cmd, err.Error())
			}
			if s.Terminal() {
				return errors.New("a tensor is not written to a terminal: redirect the output, or `ckptfs show --stats FILE`")
			}
			ctx := cmd.Context()
			return s.Look(ctx, file, func(c *control.Client, at *place.Place) error {
				d, err := c.Tensor(ctx, at.Path, name, npy)
				if err != nil {
					return err
				}
				defer d.Close()
				_, err = io.CopyBuffer(struct{ io.Writer }{s.Out()}, struct{ io.Reader }{d},
					make([]byte, 1<<20))
				return err
			})
		},
	}
	c.Flags().BoolVar(&npy, "npy", false, "with the header of a .npy file")
	return c
}
