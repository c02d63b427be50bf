package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/takeout"
)

func (c *commands) cp() *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "cp SOURCE… DEST",
		Short: "Copy files and folders out of a store, without a mount",
		Long: `Copies to DEST, as cp does: into the folder DEST if there is one, else to that name. SOURCE is a path in a mount or
STORE/PATH, whether the store is mounted or not. Modes, modification times, links and holes are kept, and owners if root
copies. Packed bytes are compared with their hashes on the way. Views are copied only if one is named.

A file has its name once it is whole and durable, and so has a new folder. Interrupted, the same command goes on: what
was copied is not copied again, if size and time are the same. What cannot be read is named, and the rest copied.

    ckptfs cp -r ./store/runs/a /elsewhere/`,
		Args: c.atLeast(2, "a source or more, and a destination"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, dest := args[:len(args)-1], args[len(args)-1]
			if err := c.Outside(dest); err != nil {
				return err
			}
			t, err := c.target(cmd, from, dest)
			if err != nil {
				return err
			}
			defer t.root.Close()
			return c.Inside(cmd.Context(), from, func(s *control.Client, at []string) error {
				if err := c.onlyFiles(cmd, s, at, from, recursive); err != nil {
					return err
				}
				return c.copyAll(cmd.Context(), s, at, from, t)
			})
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy folders, and what is below them")
	return cmd
}

// target is where copies go: to names in a folder.
type target struct {
	root *os.Root
	name string // "": each has its own
}

func (c *commands) target(cmd *cobra.Command, from []string, dest string) (target, error) {
	if st, err := os.Stat(dest); err == nil && st.IsDir() {
		root, err := os.OpenRoot(dest)
		return target{root: root}, err
	}
	if len(from) > 1 {
		return target{}, c.Usage(cmd, dest+" is no folder, which several sources are copied into")
	}
	dest, err := filepath.Abs(dest)
	if err != nil {
		return target{}, err
	}
	root, err := os.OpenRoot(filepath.Dir(dest))
	return target{root, filepath.Base(dest)}, err
}

func (c *commands) onlyFiles(cmd *cobra.Command, s *control.Client, at, from []string, folders bool) error {
	for i, p := range at {
		e, err := s.Entry(cmd.Context(), p)
		if err != nil {
			return err
		}
		if e.Mode&unix.S_IFMT == unix.S_IFDIR && !folders {
			return c.Usage(cmd, from[i]+" is a folder: -r copies it")
		}
	}
	return nil
}

// copied is what cp prints.
type copied struct {
	takeout.Taken
	To string `json:"to"`
}

func (c *commands) copyAll(ctx context.Context, s *control.Client, at, from []string, t target) error {
	update, done := c.Progress("copying")
	o := takeout.Options{Progress: update, Owners: os.Geteuid() == 0}
	sum := copied{To: filepath.Join(t.root.Name(), t.name)}
	sum.Skipped = []control.Skip{}
	for i, p := range at {
		name := t.name
		if name == "" {
			abs, err := filepath.Abs(from[i])
			if err != nil {
				return err
			}
			name = filepath.Base(abs)
		}
		took, err := takeout.Copy(ctx, s, p, t.root, name, o)
		if err != nil {
			done()
			return fmt.Errorf("copy to %s: %w", sum.To, err)
		}
		sum.add(took)
	}
	done()
	if err := c.Show(sum, func(w io.Writer) { sum.print(w) }); err != nil {
		return err
	}
	return c.leftOut(&sum.Taken)
}

func (s *copied) add(t *takeout.Taken) {
	s.Files += t.Files
	s.Bytes += t.Bytes
	s.Kept += t.Kept
	s.Links += t.Links
	s.Skipped = append(s.Skipped, t.Skipped...)
	if s.Failed == nil {
		s.Failed = t.Failed
	}
}

func (s *copied) print(w io.Writer) {
	fmt.Fprintf(w, "copied %s, %s, to %s", text.Plural(int64(s.Files), "file"), text.Bytes(s.Bytes),
		text.Printable(s.To))
	if s.Kept > 0 {
		fmt.Fprintf(w, "; %s there already", text.Plural(int64(s.Kept), "name"))
	}
	fmt.Fprintln(w)
}

// leftOut names what was left out, and is the error of that: damage, if there was any.
func (c *commands) leftOut(t *takeout.Taken) error {
	if len(t.Skipped) == 0 {
		return nil
	}
	c.Left(t.Skipped)
	if errors.Is(t.Failed, cas.ErrCorrupt) {
		return t.Failed
	}
	return c.Partial()
}
