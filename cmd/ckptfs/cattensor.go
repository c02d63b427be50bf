package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) catTensorCmd() *cobra.Command {
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
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return wantArgs(cmd, args, 2)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			file, name, err := tensorArg(args)
			if err != nil {
				return &usageError{msg: err.Error(), cmd: cmd}
			}
			if (shell{a}).Terminal() {
				return errors.New("a tensor is not written to a terminal: redirect the output, or `ckptfs show --stats FILE`")
			}
			ctx := cmd.Context()
			return a.with(ctx, file, readOnly, func(s *session) error {
				d, err := s.Tensor(ctx, s.place.path, name, npy)
				if err != nil {
					return err
				}
				defer d.Close()
				_, err = io.CopyBuffer(struct{ io.Writer }{a.out}, struct{ io.Reader }{d},
					make([]byte, 1<<20))
				return err
			})
		},
	}
	c.Flags().BoolVar(&npy, "npy", false, "with the header of a .npy file")
	return c
}

// tensorArg is the file and the tensor that the arguments name. Both may have colons in them: the file is the
// shortest part before one that there is, or else the shortest that is a folder.
func tensorArg(args []string) (file, name string, err error) {
	if len(args) == 2 {
		return args[0], args[1], nil
	}
	folder := 0
	for i, c := range args[0] {
		if c != ':' {
			continue
		}
		if st, err := os.Stat(args[0][:i]); err == nil && !st.IsDir() {
			return args[0][:i], args[0][i+1:], nil
		} else if err == nil && folder == 0 {
			folder = i
		}
	}
	if folder > 0 {
		return args[0][:folder], args[0][folder+1:], nil
	}
	if !strings.Contains(args[0], ":") {
		return "", "", errors.New("cat-tensor takes a file and the name of a tensor in it")
	}
	return "", "", fmt.Errorf("%s: no file before a colon there; FILE:TENSOR, or two arguments", args[0])
}
