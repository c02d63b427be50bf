// Package tensors has the commands that look into files: their tensors, and what differs between two.
package tensors

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/place"
	"ckptfs/fs/control"
)

// Shell is the program to the commands of this package.
type Shell interface {
	// Show prints a result, as JSON if that was asked for.
	Show(v any, human func(io.Writer)) error
	Out() io.Writer
	// Terminal reports whether what commands print goes to one.
	Terminal() bool
	Progress(doing string) (update func(control.Progress), done func())
	// Look connects to the volume that a path lies in, to change nothing.
	Look(ctx context.Context, path string, do func(c *control.Client, at *place.Place) error) error
	// LookTwo is Look for two paths of one store, also of what is gone; other is the second one below the
	// mount's root.
	LookTwo(ctx context.Context, path, other string,
		do func(c *control.Client, at *place.Place, other string) error) error
}

// Commands are the commands that look into files.
func Commands(s Shell) []*cobra.Command {
	return []*cobra.Command{showCmd(s), catTensorCmd(s), diffCmd(s), findCmd(s), verifyCmd(s)}
}
