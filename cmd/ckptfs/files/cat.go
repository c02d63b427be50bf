package files

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"ckptfs/fs/control"
	"ckptfs/fs/takeout"
)

func (c *commands) cat() *cobra.Command {
	var r stretch
	cmd := &cobra.Command{
		Use:   "cat FILE…",
		Short: "Write files to standard output, without a mount",
		Long: `Writes the bytes of files, one after the other. FILE is a path in a mount or STORE/PATH, whether the store is mounted or
not. It may be a view, too. Packed bytes are compared with their hashes on the way.

--offset and --length have a part of one file written, which ends where the file ends. --if-unchanged TIME fails if the
file was changed at another time than TIME, its ctime in "ls --json": parts that are read one by one are of one file.

    ckptfs cat ./store/runs/a/7/metrics.json
    ckptfs cat --offset 8 --length 1000 ./store/runs/a/7/model.safetensors`,
		Args: c.atLeast(1, "a file or more"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.toEnd = !cmd.Flags().Changed("length")
			if err := r.check(c, cmd, len(args)); err != nil {
				return err
			}
			ctx := cmd.Context()
			return c.Inside(ctx, args, func(s *control.Client, at []string) error {
				buf := make([]byte, 1<<20)
				for _, file := range at {
					if err := r.write(ctx, c, s, file, buf); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().Int64Var(&r.off, "offset", 0, "the first byte of the file that is written")
	cmd.Flags().Int64Var(&r.length, "length", 0, "how many bytes are written, at most; without it, all up to the end")
	cmd.Flags().StringVar(&r.changed, "if-unchanged", "", "fail unless the file was changed last at this time, its ctime")
	return cmd
}

// stretch is the part of a file that cat writes.
type stretch struct {
	off, length int64
	toEnd       bool   // whatever the length
	changed     string // when the file is to have been changed last; "": at any time
	ctime       time.Time
}

func (r *stretch) check(c *commands, cmd *cobra.Command, files int) error {
	switch {
	case files > 1 && (r.off != 0 || !r.toEnd || r.changed != ""):
		return c.Usage(cmd, "--offset, --length and --if-unchanged are of one file: give one")
	case r.off < 0 || r.length < 0:
		return c.Usage(cmd, "--offset and --length count bytes: give no negative number")
	case r.changed == "":
		return nil
	}
	var err error
	if r.ctime, err = time.Parse(time.RFC3339Nano, r.changed); err != nil {
		return c.Usage(cmd, "--if-unchanged "+r.changed+" is no time as ls --json prints it, 2006-01-02T15:04:05.999999999Z")
	}
	return nil
}

func (r *stretch) write(ctx context.Context, c *commands, s *control.Client, file string, buf []byte) error {
	e, err := r.entry(ctx, s, file)
	if err != nil {
		return err
	}
	end := e.Size
	if !r.toEnd && r.length < end-r.off {
		end = r.off + r.length
	}
	w := takeout.FilledFrom(c.Out(), r.off)
	if r.toEnd && r.off == 0 {
		err = takeout.Read(ctx, s, file, buf, w.WriteAt) // all that there is, if it grows meanwhile
	} else {
		err = takeout.ReadRange(ctx, s, file, r.off, end, buf, w.WriteAt)
	}
	if err == nil {
		err = w.WriteAt(nil, end)
	}
	if err == nil && r.changed != "" {
		_, err = r.entry(ctx, s, file)
	}
	return err
}

// entry is the file, if it is the one that is meant.
func (r *stretch) entry(ctx context.Context, s *control.Client, file string) (*control.Entry, error) {
	e, err := s.Entry(ctx, file)
	if err == nil && r.changed != "" && !e.Ctime.Equal(r.ctime) {
		err = &control.Error{Code: control.CodeConflict, Errno: "ESTALE",
			Message: file + " was changed meanwhile, at " + e.Ctime.Format(time.RFC3339Nano),
			Do:      "read it again from its beginning"}
	}
	return e, err
}
