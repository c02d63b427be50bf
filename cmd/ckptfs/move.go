package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/linked"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func (a *app) evictCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "evict PATH…",
		Short: "Drop the local copy of packed files",
		Long: `Drops the local copy of the packed files at or below PATH. They then take only what their distinct tensors take, and
read as the same bytes. Files that are not packed, or in use, are left as they are and named (exit code 7). Symbolic
links below PATH are followed within the mount.`,
		Args: args.Some,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.move(cmd.Context(), args,
				mover{"evicting", "evicted", "freed", (*control.Client).Evict, false})
		},
	}
}

func (a *app) hydrateCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "hydrate PATH…",
		Short: "Restore the local copy of packed files",
		Long: `Restores the local copy of the packed files at or below PATH, which are then read at the speed of the disk. The copies
count against --hot-size like any other: the least recently used are evicted first. Symbolic links below PATH are
followed within the mount.`,
		Args: args.Some,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.move(cmd.Context(), args,
				mover{"hydrating", "hydrated", "copied", (*control.Client).Hydrate, true})
		},
	}
}

// left names what was left as it is.
func (a *app) left(skipped []control.Skip) {
	for _, k := range skipped {
		fmt.Fprintf(a.err, "ckptfs: %s: left as it is: %s\n", text.Printable(k.Path), text.Printable(k.Reason))
	}
}

type moving func(*control.Client, context.Context, string, func(control.Progress)) (*control.Moved, error)

// mover is what evict or hydrate does to a path, and how it says so.
type mover struct {
	doing, did, bytes string
	do                moving
	hydrates          bool
}

// all does so to some paths, and adds up what it did.
func (m mover) all(ctx context.Context, s *session, paths []string, update func(control.Progress),
	sum *control.Moved) error {
	for _, p := range paths {
		one, err := m.do(s.Client, ctx, p, update)
		if err != nil {
			return err
		}
		sum.Add(one)
	}
	return nil
}

// move does so for each path, and for what symbolic links below it lead to; what it prints is the sum.
func (a *app) move(ctx context.Context, paths []string, move mover) error {
	sum := &control.Moved{Skipped: []control.Skip{}}
	for _, path := range paths {
		err := a.with(ctx, path, readWrite, func(s *session) error {
			more, err := linked.Outside(ctx, s.Client, s.place)
			if err != nil {
				return err
			}
			var before *control.Status
			if move.hydrates {
				if before, err = s.Status(ctx); err != nil {
					return err
				}
			}
			moved := sum.Bytes
			update, done := a.progress(move.doing)
			err = move.all(ctx, s, append([]string{s.place.Path}, more...), update, sum)
			done()
			if err != nil {
				return err
			}
			if !move.hydrates {
				return nil
			}
			if after, err := s.Status(ctx); err == nil {
				if warning := text.NotKept(before, after, sum.Bytes-moved); warning != "" {
					shell{a}.Say("%s: %s", path, warning)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	err := a.show(sum, func(w io.Writer) {
		a.left(sum.Skipped)
		fmt.Fprintf(w, "%s %s, %s %s\n", move.did, text.Plural(int64(sum.Files), "file"),
			text.Bytes(sum.Bytes), move.bytes)
	})
	if err == nil && len(sum.Skipped) > 0 {
		err = exit.ErrPartial
	}
	return err
}
