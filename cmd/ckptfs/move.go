package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func (a *app) evictCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "evict PATH…",
		Short: "Drop the local copy of packed files",
		Long: `Drops the local copy of the packed files at or below PATH. They then take only what their distinct tensors take, and
read as the same bytes. Files that are not packed, or in use, are left as they are and named (exit code 7).`,
		Args: args.Some,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.move(cmd.Context(), args, "evicting", "evicted", "freed", (*control.Client).Evict)
		},
	}
}

func (a *app) hydrateCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "hydrate PATH…",
		Short: "Restore the local copy of packed files",
		Long: `Restores the local copy of the packed files at or below PATH, which are then read at the speed of the disk. The copies
count against --hot-size like any other: the least recently used are evicted first.`,
		Args: args.Some,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.move(cmd.Context(), args, "hydrating", "hydrated", "copied", (*control.Client).Hydrate)
		},
	}
}

// left names what was left as it is.
func (a *app) left(skipped []control.Skip) {
	for _, k := range skipped {
		fmt.Fprintf(a.err, "ckptfs: %s: left as it is: %s\n", text.Printable(k.Path), text.Printable(k.Reason))
	}
}

type mover func(*control.Client, context.Context, string, func(control.Progress)) (*control.Moved, error)

// move does so for each path; what it prints is the sum.
func (a *app) move(ctx context.Context, paths []string, doing, did, bytes string, move mover) error {
	sum := &control.Moved{Skipped: []control.Skip{}}
	for _, path := range paths {
		err := a.with(ctx, path, readWrite, func(s *session) error {
			update, done := a.progress(doing)
			m, err := move(s.Client, ctx, s.place.Path, update)
			done()
			if err != nil {
				return err
			}
			sum.Files += m.Files
			sum.Bytes += m.Bytes
			sum.Skipped = append(sum.Skipped, m.Skipped...)
			return nil
		})
		if err != nil {
			return err
		}
	}
	err := a.show(sum, func(w io.Writer) {
		a.left(sum.Skipped)
		fmt.Fprintf(w, "%s %s, %s %s\n", did, text.Plural(int64(sum.Files), "file"), text.Bytes(sum.Bytes),
			bytes)
	})
	if err == nil && len(sum.Skipped) > 0 {
		err = exit.ErrPartial
	}
	return err
}
