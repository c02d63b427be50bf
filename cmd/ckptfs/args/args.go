// Package args checks how many arguments a command was given.
package args

import (
	"fmt"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/text"
)

// None is for a command without arguments.
func None(cmd *cobra.Command, args []string) error { return exactly(cmd, args, 0) }

// One is for a command with one argument.
func One(cmd *cobra.Command, args []string) error { return exactly(cmd, args, 1) }

// Two is for a command with two.
func Two(cmd *cobra.Command, args []string) error { return exactly(cmd, args, 2) }

// Some is for a command with one path or more.
func Some(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return exit.Wrong(cmd, cmd.Name()+" takes a path or more")
}

func exactly(cmd *cobra.Command, args []string, n int) error {
	if len(args) == n {
		return nil
	}
	return exit.Wrong(cmd, fmt.Sprintf("%s takes %s, not %d", cmd.Name(), text.Plural(int64(n), "argument"),
		len(args)))
}
