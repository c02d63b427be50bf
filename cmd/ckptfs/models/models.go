// Package models has the commands about runs, their steps, and the models in them.
package models

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
	JSON() bool
	// Say tells on standard error what is no result.
	Say(format string, args ...any)
	// Progress shows on a terminal how far something is; done takes it away. update is nil elsewhere.
	Progress(doing string) (update func(control.Progress), done func())
	// Waiting shows on a terminal for how long something takes; done takes it away.
	Waiting(doing string) (done func())
	// Left names what was left as it is, and Partial is the error of that.
	Left([]control.Skip)
	Partial() error
	// Look connects to the volume that a path lies in, to change nothing.
	Look(ctx context.Context, path string, do func(c *control.Client, at *place.Place) error) error
	// LookPast is Look, also of a path of what is gone.
	LookPast(ctx context.Context, path string, do func(c *control.Client, at *place.Place) error) error
	// LookTwo is LookPast for two paths of one store; other is the second one below the mount's root.
	LookTwo(ctx context.Context, path, other string,
		do func(c *control.Client, at *place.Place, other string) error) error
	// Whole is Look for what a command does to the whole store, whichever path in it is named.
	Whole(cmd *cobra.Command, path string, do func(c *control.Client, at *place.Place) error) error
	// Change connects to the volume that a path lies in, to change it.
	Change(ctx context.Context, path string, do func(c *control.Client, at *place.Place) error) error
}

// Commands are the commands about runs and models.
func Commands(s Shell) []*cobra.Command {
	return []*cobra.Command{runsCmd(s), logCmd(s), bestCmd(s), watchCmd(s), lineageCmd(s),
		ancestorCmd(s), ownerCmd(s),
		matchCmd(s), retireCmd(s)}
}

// Forget is the command forget.
func Forget(s Shell) *cobra.Command { return forgetCmd(s) }
