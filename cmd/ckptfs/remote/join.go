package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/patient"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/web"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
)

func (c *commands) add() *cobra.Command {
	var as role
	cmd := &cobra.Command{
		Use:   "add URL STORE",
		Short: "Make a remote, or join one, and let a store publish to it",
		Long: `Validates the object store (see remote validate), makes the remote unless there is one, and registers the store as one
of its writers. If the store is mounted, the mount uses the remote from here on, with the credentials that it finds in
its own environment. Done again it changes nothing.`,
		Args: c.args("URL STORE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.address(cmd, args[0])
			if err != nil {
				return err
			}
			store, err := c.Store(args[1])
			if err != nil {
				return err
			}
			out, err := c.join(cmd.Context(), a, store, as)
			if err != nil {
				return err
			}
			return c.Show(out, out.Print)
		},
	}
	c.at.add(cmd.Flags())
	as.addName(cmd.Flags())
	return cmd
}

// role is as what a store joins a remote.
type role struct {
	name   string // of a writer
	reader bool
}

func (r *role) add(f *pflag.FlagSet) {
	r.addName(f)
	f.BoolVar(&r.reader, "reader", false, "join as a store that publishes nothing, and whose mounts are read-only: the credentials need only read")
}

func (r *role) addName(f *pflag.FlagSet) {
	f.StringVar(&r.name, "writer", "", "the name under which others see a store that joins; the host's if not given")
}

// writer is the name as that a store is to be seen.
func (r *role) writer() string {
	if r.name != "" {
		return r.name
	}
	host, _ := os.Hostname()
	return host
}

// Added is what a store that joins a remote is told of it.
type Added struct {
	store  string
	URL    string        `json:"url"`
	ID     string        `json:"id"`
	Made   bool          `json:"made"`             // else it was there
	Writer record.Writer `json:"writer,omitempty"` // "": it is only read
	Since  time.Time     `json:"created"`
}

// Print says whether the remote is new: who mistyped a prefix sees it by that.
func (a *Added) Print(w io.Writer) {
	is := "a new remote"
	if !a.Made {
		is = "joined the remote of " + a.Since.Local().Format(time.DateTime)
	}
	does := "reads it"
	if a.Writer != "" {
		does = "publishes to it as " + string(a.Writer)
	}
	fmt.Fprintf(w, "%s: %s; %s %s\n", a.URL, is, text.Printable(a.store), does)
}

// join joins a store to the remote at an address, unless it is.
func (c *commands) join(ctx context.Context, a remote.Address, store string, as role) (*Added, error) {
	joined, err := joinedTo(store, a)
	if err != nil {
		return nil, err
	}
	m, err := c.meet(ctx, a, as.reader || joined != nil && joined.ReadOnly(), joined == nil)
	if err != nil {
		return nil, err
	}
	if joined != nil && m.format.ID != joined.ID {
		return nil, fmt.Errorf("%s is another remote than the one that store %s joined: its id is %s, it was %s", a.URL(),
			store, m.format.ID, joined.ID)
	}
	if joined == nil {
		if joined, err = c.enter(ctx, m, store, as); err != nil {
			return nil, err
		}
	}
	err = c.Tell(ctx, store, func(s *control.Client) error { return s.Join(ctx) })
	if err != nil {
		return nil, fmt.Errorf("%s: store %s has joined it, but its mount cannot use it: %w", a.URL(), store, err)
	}
	if j, err := remote.ReadJoined(store); err == nil { // a mount that joined it before keeps to its name
		joined = &j
	}
	return m.added(store, joined), nil
}

// joinedTo is what a store has joined; nil if that is nothing. Another remote than that at a is an error.
func joinedTo(store string, a remote.Address) (*remote.Joined, error) {
	j, err := remote.ReadJoined(store)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case j.Address != a:
		return nil, fmt.Errorf("store %s has a remote already, %s: give that one. To leave it, pull what is to stay, unmount, and remove %s", store,
			strings.Join(append([]string{j.URL()}, flags(j.Address)...), " "), remote.JoinedPath(store))
	}
	return &j, nil
}

// met is a remote that answered.
type met struct {
	remote.Address
	reader bool
	bucket bucket.Bucket
	format remote.Format
	made   bool
}

func (m *met) added(store string, j *remote.Joined) *Added {
	return &Added{store, m.URL(), m.format.ID.String(), m.made, j.Writer, m.format.Created}
}

// meet looks what is at an address. Who is to write makes a remote there unless there is one; as new its
// engine is probed before.
func (c *commands) meet(ctx context.Context, a remote.Address, reader, isNew bool) (m *met, err error) {
	m = &met{Address: a, reader: reader || a.ReadOnly()}
	if m.bucket, err = a.Open(ctx); err != nil {
		return nil, err
	}
	if m.reader {
		m.format, err = remote.Look(patient.Promptly(ctx), patiently(m.bucket, patience))
		if server, ok := m.bucket.(*web.Bucket); ok && err == nil {
			return m, server.CheckRanges(ctx)
		}
	} else {
		if isNew {
			if _, err := c.probe(ctx, a, m.bucket, false); err != nil {
				return nil, hintReader(err)
			}
		}
		m.format, m.made, err = remote.Make(ctx, m.bucket, c.now())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.URL(), err)
	}
	return m, nil
}

// hintReader says what may be done with credentials that are refused, unless they may not even read.
func hintReader(err error) error {
	var asked *bucket.Error
	if errors.Is(err, bucket.ErrDenied) && (!errors.As(err, &asked) || asked.Op != "get") {
		err = fmt.Errorf("%w; --reader joins with credentials that may only read", err)
	}
	return err
}

// enter joins a store to a remote.
func (c *commands) enter(ctx context.Context, m *met, store string, as role) (*remote.Joined, error) {
	j := remote.Joined{Address: m.Address, ID: m.format.ID}
	if !m.reader {
		var err error
		if j.Writer, err = remote.Register(ctx, m.bucket, as.writer()); err != nil {
			return nil, fmt.Errorf("%s: %w", m.URL(), err)
		}
	}
	return &j, j.Write(store)
}

// begin makes a store that is joined to the remote at an address, and reads what that has. Nothing is made
// before the remote has answered. What a begin that was killed has left is gone on with: a store in the
// making, one without files, or one that is joined already.
func (c *commands) begin(ctx context.Context, a remote.Address, store string, joined *remote.Joined,
	as role) (out *Added, err error) {
	reads := as.reader || a.ReadOnly()
	switch {
	case joined != nil && joined.ReadOnly() != reads:
		return out, otherRole(store, joined)
	case joined == nil && !unmade(filepath.Join(store, tree.TreeDir)):
		return out, fmt.Errorf("store %s has files of its own: give a folder that is empty, or does not exist; `ckptfs remote add` joins a store that exists", store)
	case unmade(store):
		m, err := c.meet(ctx, a, reads, true)
		if err != nil {
			return out, err
		}
		if err := c.Make(ctx, store); err != nil {
			return out, err
		}
		j, err := c.enter(ctx, m, store, as)
		if err != nil {
			return out, err
		}
		return m.added(store, j), c.look(ctx, store)
	case unmade(filepath.Join(store, tree.FormatFile)): // in the making, or no store at all
		if err := c.Make(ctx, store); err != nil {
			return out, err
		}
	}
	if out, err = c.join(ctx, a, store, as); err != nil {
		return out, err
	}
	return out, c.look(ctx, store)
}

// otherRole is the error of who wants to join a store as something else than it joined.
func otherRole(store string, j *remote.Joined) error {
	if j.ReadOnly() {
		return fmt.Errorf("store %s reads %s and publishes nothing: without --reader give another one", store,
			j.URL())
	}
	return fmt.Errorf("store %s publishes to %s as %s: for --reader give another one", store, j.URL(), j.Writer)
}

// look reads what others published to the remote of a store.
func (c *commands) look(ctx context.Context, store string) error {
	return c.With(ctx, store, func(s *control.Client, _ string) error {
		_, err := s.Fetch(ctx)
		return err
	})
}

// cloned is what clone prints.
type cloned struct {
	*Added
	Pulled *control.Pulled `json:"pulled,omitempty"`
}

func (c *commands) clone() *cobra.Command {
	var as role
	var all bool
	cmd := &cobra.Command{
		Use:   "clone URL STORE",
		Short: "Make a store that is joined to a remote",
		Long: `Makes a new store, joins it to the remote (see remote add), and reads the names that others published. They appear once
the store is mounted. The bytes of a file are fetched when they are read, since a remote may hold more than
this disk: pull fetches a run or a step, --all everything. A clone that was interrupted goes on when it is run
again.

    ckptfs clone s3://models/team ./store
    ckptfs pull ./store/tree/runs/a

A URL that begins with https:// is a mirror of a remote over plain HTTP. It takes no credentials, shows what was
exported to it (see remote export), and is only read; a mount of the store is read-only.`,
		Args: c.args("URL STORE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.at.of(args[0])
			if err != nil {
				return c.Usage(cmd, err.Error())
			}
			store, err := filepath.Abs(args[1])
			if err != nil {
				return err
			}
			joined, err := joinedTo(store, a)
			if err != nil {
				return err
			}
			var out cloned
			if out.Added, err = c.begin(cmd.Context(), a, store, joined, as); err != nil {
				return err
			}
			return c.fill(cmd.Context(), store, &out, all)
		},
	}
	c.at.add(cmd.Flags())
	as.add(cmd.Flags())
	cmd.Flags().BoolVar(&all, "all", false, "fetch all bytes, too")
	return cmd
}

// fill says what clone did, and brings all bytes before that if that is wanted.
func (c *commands) fill(ctx context.Context, store string, out *cloned, all bool) error {
	skipped := []control.Skip{}
	if all {
		err := c.each(ctx, []string{store}, "pulling",
			func(s *control.Client, _ string, update func(control.Progress)) (err error) {
				if out.Pulled, err = s.Pull(ctx, steps.Dir, update); errors.Is(err, os.ErrNotExist) {
					out.Pulled, err = &control.Pulled{Skipped: skipped}, nil // the remote is empty
				}
				return err
			})
		if err != nil {
			return err
		}
		skipped = out.Pulled.Skipped
	}
	return c.showSome(out, skipped, func(w io.Writer) {
		out.Print(w)
		if p := out.Pulled; p != nil {
			printPulled(w, p)
		}
	})
}

// unmade reports whether there is nothing at a path yet that a store's folder may be made of.
func unmade(store string) bool {
	list, err := os.ReadDir(store)
	return errors.Is(err, os.ErrNotExist) || err == nil && len(list) == 0
}
