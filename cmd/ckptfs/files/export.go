package files

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/takeout"
)

func (c *commands) export() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "export STEP…",
		Short: "Write steps as a tar, without a mount",
		Long: `Writes steps, or any paths, as a tar to standard output. STEP is a path in a mount or STORE/PATH, whether the store is
mounted or not. The names in it begin below the folder that all paths lie in: of one step, with the step's. The same
files give the same tar: no owners are in it, and views are not. Packed bytes are compared with their hashes on the way.

    ckptfs export ./store/runs/a/7 | ssh other tar x

(ckptfs remote export publishes a run to servers, and is something else.)`,
		Args: c.atLeast(1, "a path or more"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" && c.Terminal() {
				return c.Usage(cmd, "a tar is not written to a terminal: redirect the output, or give -o FILE")
			}
			if out == "" && c.JSON() {
				return c.Usage(cmd, "--json takes -o FILE: the tar goes to standard output")
			}
			write := func(do func(io.Writer) error) error { return do(c.Out()) }
			if out != "" {
				if err := c.Outside(out); err != nil {
					return err
				}
				write = func(do func(io.Writer) error) error { return toFile(out, do) }
			}
			return c.Inside(cmd.Context(), args, func(s *control.Client, at []string) error {
				update, done := c.Progress("exporting")
				var took *takeout.Taken
				err := write(func(w io.Writer) (err error) {
					o := takeout.Options{Progress: update}
					took, err = takeout.Tar(cmd.Context(), s, at, takeout.Parent(at), w, o)
					return err
				})
				done()
				if err != nil {
					return err
				}
				if out != "" {
					err = c.Show(took, func(w io.Writer) {
						fmt.Fprintf(w, "exported %s, %s, to %s\n", text.Plural(int64(took.Files), "file"),
							text.Bytes(took.Bytes), text.Printable(out))
					})
				}
				if err != nil {
					return err
				}
				return c.leftOut(took)
			})
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "the file to write, which has its name once it is whole")
	return cmd
}

// toFile has a new file written, which has its name once it is whole.
func toFile(name string, do func(io.Writer) error) error {
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer root.Close()
	p, err := takeout.NewPart(root, filepath.Base(name))
	if err != nil {
		return err
	}
	if err := do(p); err != nil {
		p.Drop()
		return err
	}
	if err := p.Commit(); err != nil {
		return err
	}
	return takeout.Finish(root)
}
