// Package files has the commands that read the files of a store without a mount: ls, cat, cp, export.
package files

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"ckptfs/fs/control"
)

// Shell is what the commands need of the program.
type Shell interface {
	// Show prints a result, as JSON if that was asked for.
	Show(v any, human func(io.Writer)) error
	// JSON says whether it was, and Out is where results are printed. Terminal: that is one.
	JSON() bool
	Out() io.Writer
	Terminal() bool
	// Usage is the error of a command line that makes no sense.
	Usage(cmd *cobra.Command, message string) error
	// Inside connects to the volume that paths lie in; at are the paths below its root. A path may be one in
	// a mount, or STORE/PATH.
	Inside(ctx context.Context, paths []string, do func(c *control.Client, at []string) error) error
	// Outside fails for a path in the folder of a store.
	Outside(path string) error
	// Progress shows on a terminal how far something is; done takes it away.
	Progress(doing string) (update func(control.Progress), done func())
	// Left names what was left as it is, and Partial is the error of that.
	Left([]control.Skip)
	Partial() error
}

// commands are what the commands share.
type commands struct{ Shell }

// Commands are ls, cat, cp and export.
func Commands(s Shell) []*cobra.Command {
	c := &commands{s}
	return []*cobra.Command{c.ls(), c.cat(), c.cp(), c.export()}
}

// atLeast is the Args of a command that takes so many arguments or more.
func (c *commands) atLeast(n int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= n {
			return nil
		}
		return c.Usage(cmd, fmt.Sprintf("%s takes %s", cmd.Name(), names))
	}
}
