package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/patient"
	"ckptfs/cmd/ckptfs/text"
)

// Extend gives commands that do something for a store a flag to do it for its remote.
func Extend(s Shell, commands ...*cobra.Command) []*cobra.Command {
	c := newCommands(s)
	for _, cmd := range commands {
		switch cmd.Name() {
		case "prune":
			c.extend(cmd, "free the space of what nobody needs in the remote", c.prune)
		case "check":
			c.extend(cmd, "look for damage in the remote", c.check)
		case "repair":
			c.repairFlags(cmd)
		case "stats":
			c.extend(cmd, "show what is stored in the remote, and how much of it is needed", c.stats)
		}
	}
	return commands
}

// extend adds the flag --remote to a command, which then takes one path and does run.
func (c *commands) extend(cmd *cobra.Command, what string,
	run func(ctx context.Context, cmd *cobra.Command, path string) error) {
	over := cmd.Flags().Bool("remote", false, what)
	local, args := cmd.RunE, cmd.Args
	one := c.args("PATH")
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if *over {
			return one(cmd, given)
		}
		return args(cmd, given)
	}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if !*over {
			return local(cmd, given)
		}
		return run(cmd.Context(), cmd, given[0])
	}
}

// joined is the remote of the store that a path lies in.
type joined struct {
	remote.Joined
	engine bucket.Bucket
	bucket bucket.Bucket // engine, guarded
}

func (c *commands) joined(ctx context.Context, path string) (*joined, error) {
	store, err := c.Store(path)
	if err != nil {
		return nil, err
	}
	j, err := remote.ReadJoined(store)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("store %s has no remote: `ckptfs remote add URL %s` gives it one", store, text.Word(store))
	}
	if err != nil {
		return nil, err
	}
	engine, err := j.Open(ctx)
	if err != nil {
		return nil, err
	}
	out := &joined{Joined: j, engine: engine, bucket: guarded(j, engine)}
	f, err := remote.Look(patient.Promptly(ctx), out.bucket)
	if err == nil && f.ID != j.ID {
		err = fmt.Errorf("another remote than the one that was joined is there: its id is %s, it was %s", f.ID, j.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", j.URL(), err)
	}
	return out, nil
}

// writer is joined's remote, unless the store only reads it.
func (c *commands) writer(ctx context.Context, path string) (*joined, error) {
	j, err := c.joined(ctx, path)
	if err == nil {
		err = j.MayWrite()
	}
	return j, err
}

// counts says on the terminal what is being done, how much of it was, and how quickly, a few times a second.
func (c *commands) counts() (say func(doing string, n int64), done func()) {
	tell, done := c.Doing()
	var last, began time.Time
	phase, from := "", int64(0)
	return func(doing string, n int64) {
		now := c.now()
		if doing != phase {
			phase, from, began = doing, n, now
		}
		if now.Sub(last) <= time.Second/5 {
			return
		}
		last = now
		line := doing + ": " + humanize.Comma(n)
		if in := now.Sub(began); in > time.Second && n > from {
			line += fmt.Sprintf(", %s/s", humanize.Comma(int64(float64(n-from)/in.Seconds())))
		}
		tell(line)
	}, done
}

// Span is a flag that takes a time span such as 24h or 7d.
type Span time.Duration

func (s *Span) String() string {
	d := time.Duration(*s)
	if d == 0 {
		return "0" // which is no default to tell of
	}
	if days := d / (24 * time.Hour); d > 0 && d == days*24*time.Hour {
		return strconv.FormatInt(int64(days), 10) + "d"
	}
	return d.String()
}

// Type is pflag's.
func (s *Span) Type() string { return "duration" }

// Set is pflag's.
func (s *Span) Set(text string) error {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		*s = Span(time.Duration(n) * 24 * time.Hour)
		if err == nil {
			return nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is not a time, such as 0, 90s, 24h or 7d", text)
	}
	*s = Span(d)
	return nil
}
