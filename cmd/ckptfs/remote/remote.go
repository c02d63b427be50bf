// Package remote has the commands about remotes: stores that several machines share on an object store.
package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/patient"
	"ckptfs/cas/remote/probe"
	"ckptfs/cas/remote/record"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

// Shell is what the commands need of the program.
type Shell interface {
	// Show prints a result, as JSON if that was asked for.
	Show(v any, human func(io.Writer)) error
	// Usage is the error of a command line that makes no sense.
	Usage(cmd *cobra.Command, message string) error
	// Store is the folder of the store that a path lies in.
	Store(path string) (string, error)
	// With connects to the volume that a path lies in; at is the path below the mount's root.
	With(ctx context.Context, path string, do func(c *control.Client, at string) error) error
	// Tell asks the daemon that has a store mounted; without one nothing is done.
	Tell(ctx context.Context, store string, do func(c *control.Client) error) error
	// Make makes a store.
	Make(ctx context.Context, store string) error
	// Progress shows on a terminal how far something is; done takes it away.
	Progress(doing string) (update func(control.Progress), done func())
	// Left names what was left as it is, and Partial is the error of that.
	Left([]control.Skip)
	Partial() error
	// Waiting shows on a terminal for how long something takes; done takes it away.
	Waiting(doing string) (done func())
	// Doing says on a terminal what is being done; done takes it away.
	Doing() (say func(what string), done func())
}

// UnfitError is an engine that failed what a remote relies on.
type UnfitError struct {
	URL    string
	Failed []probe.Check
}

// Is makes it a bucket.ErrUnfit.
func (e *UnfitError) Is(target error) bool { return target == bucket.ErrUnfit }

func (e *UnfitError) Error() string {
	var what []string
	for _, c := range e.Failed {
		what = append(what, "  "+c.Name+": "+c.Failed)
	}
	return fmt.Sprintf("%s: its object store is not fit for a remote: checkpoints would get lost\n%s", e.URL,
		strings.Join(what, "\n"))
}

// commands are what the subcommands share.
type commands struct {
	Shell
	now func() time.Time
	at  addressFlags
}

func newCommands(s Shell) *commands { return &commands{Shell: s, now: time.Now} }

// Command is `ckptfs remote` with its subcommands.
func Command(s Shell) *cobra.Command {
	c := newCommands(s)
	cmd := &cobra.Command{
		Use:   "remote COMMAND",
		Short: "Share a store among machines, on an object store",
		Long: `A remote is a prefix of a bucket of an object store that speaks S3, such as s3://models/team. Several stores can share
it. Credentials are looked for where Amazon's tools look: the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY),
~/.aws, single sign-on, the machine's role.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return c.Usage(cmd, fmt.Sprintf("no command %q", args[0]))
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(c.add(), c.validate(), c.status(), c.writers(), c.conflicts(), c.deleted(),
		c.undelete(), c.export(), c.index(), c.policy())
	return cmd
}

// args is the Args of a command that takes such arguments.
func (c *commands) args(names string) cobra.PositionalArgs {
	n := len(strings.Fields(names))
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return c.Usage(cmd, fmt.Sprintf("%s takes %s", cmd.Name(), names))
	}
}

// some is the Args of a command that takes one argument or more.
func (c *commands) some(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return nil
		}
		return c.Usage(cmd, fmt.Sprintf("%s takes %s…", cmd.Name(), name))
	}
}

func (c *commands) validate() *cobra.Command {
	var full bool
	cmd := &cobra.Command{
		Use:   "validate URL",
		Short: "Ask an object store whether it does what a remote relies on",
		Long: `Makes some hundred requests below probe/ of the prefix, and removes what it put. An object store that fails is not used:
exit code 13, with what it did wrong.`,
		Args: c.args("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.address(cmd, args[0])
			if err != nil {
				return err
			}
			b, err := a.Open(cmd.Context())
			if err != nil {
				return err
			}
			report, err := c.probe(cmd.Context(), a, b, full)
			if report == nil {
				return err
			}
			if shown := c.Show(report, func(w io.Writer) { printReport(w, a, report) }); shown != nil {
				return shown
			}
			return err
		},
	}
	c.at.add(cmd.Flags())
	cmd.Flags().BoolVar(&full, "full", false, "with thousands of requests, which takes up to a minute")
	return cmd
}

// probe probes the engine of an address. The error is an UnfitError if it failed; there is a report then,
// too.
func (c *commands) probe(ctx context.Context, a remote.Address, b bucket.Bucket,
	full bool) (*probe.Report, error) {
	if err := answers(ctx, a, b); err != nil {
		return nil, err
	}
	say, done := c.Doing()
	report, err := probe.Run(ctx, probe.Options{Full: full, Now: c.now,
		Progress: func(name string, i, n int) { say(fmt.Sprintf("check %d of %d: %s", i+1, n, name)) }}, b)
	done()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.URL(), err)
	}
	if failed := report.Unfit(); len(failed) > 0 {
		return report, &UnfitError{URL: a.URL(), Failed: failed}
	}
	return report, nil
}

// answers returns an error if nobody answers at an address, which a change would find out later, or nothing
// may be read there.
func answers(ctx context.Context, a remote.Address, b bucket.Bucket) error {
	_, err := lookSoon(ctx, b)
	switch {
	case errors.Is(err, bucket.ErrUnreachable):
		return fmt.Errorf("%s does not answer: %w", a.URL(), err)
	case errors.Is(err, bucket.ErrNoBucket), errors.Is(err, bucket.ErrDenied):
		return fmt.Errorf("%s: %w", a.URL(), err)
	}
	return nil // whatever else it is, the probe finds it
}

// lookSoon is remote.Look of an engine that may take requests and say nothing.
func lookSoon(ctx context.Context, b bucket.Bucket) (f remote.Format, err error) {
	soon, stop := context.WithTimeout(ctx, patient.Prompt)
	defer stop()
	if f, err = remote.Look(soon, b); soon.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: no answer within %s", bucket.ErrUnreachable, patient.Prompt)
	}
	return f, err
}

func printReport(w io.Writer, a remote.Address, r *probe.Report) {
	var rows [][]string
	for _, c := range r.Checks {
		result := "ok"
		switch {
		case c.Failed != "" && c.Needed:
			result = text.Paints(w).Bad("FAILED")
		case c.Failed != "":
			result = "no"
		}
		said := c.Failed
		if c.Told != "" {
			said = strings.TrimPrefix(said+"; "+c.Told, "; ")
		}
		rows = append(rows, []string{result, c.Name, text.Printable(said)})
	}
	text.Table(w, []string{"", "CHECK", ""}, rows)
	fmt.Fprintf(w, "%s: %s\n", a.URL(), text.Plural(int64(r.Requests), "request"))
}

// state is what status prints.
type state struct {
	URL      string          `json:"url"`
	Endpoint string          `json:"endpoint,omitempty"`
	ID       string          `json:"id"`
	Writer   record.Writer   `json:"writer"`
	Writers  []record.Writer `json:"writers"`
	// Conflicts is of how many names there are several versions, as far as this store has read; nil: it
	// could not be asked.
	Conflicts *int `json:"conflicts,omitempty"`
}

func (c *commands) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status STORE",
		Short: "Tell a store's remote, and who else publishes to it",
		Args:  c.args("STORE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := c.Store(args[0])
			if err != nil {
				return err
			}
			j, err := remote.ReadJoined(store)
			if errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("store %s has no remote: `ckptfs remote add URL %s` gives it one", store, text.Word(store))
			}
			if err != nil {
				return err
			}
			out, err := ask(cmd.Context(), j)
			if err != nil {
				return fmt.Errorf("%s: %w", j.URL(), err)
			}
			_ = c.With(cmd.Context(), args[0], func(s *control.Client, _ string) error {
				found, err := s.Conflicts(cmd.Context(), "")
				if err == nil {
					n := len(found.Names)
					out.Conflicts = &n
				}
				return err
			})
			return c.Show(out, func(w io.Writer) { printState(w, store, out) })
		},
	}
}

func ask(ctx context.Context, j remote.Joined) (out state, err error) {
	b, err := j.Open(ctx)
	if err != nil {
		return out, err
	}
	f, err := lookSoon(ctx, b)
	if err != nil {
		return out, err
	}
	if f.ID != j.ID {
		return out, fmt.Errorf("another remote than the one that was joined is there: its id is %s, it was %s", f.ID, j.ID)
	}
	out = state{URL: j.URL(), Endpoint: j.Endpoint, ID: j.ID.String(), Writer: j.Writer}
	out.Writers, err = remote.Writers(ctx, b)
	return out, err
}

func printState(w io.Writer, store string, s state) {
	if s.Writer == "" {
		fmt.Fprintf(w, "%s reads %s\n", store, s.URL)
	} else {
		fmt.Fprintf(w, "%s publishes to %s as %s\n", store, s.URL, s.Writer)
	}
	for _, name := range s.Writers {
		if name != s.Writer {
			fmt.Fprintf(w, "  so does %s\n", text.Printable(string(name)))
		}
	}
	if s.Conflicts != nil && *s.Conflicts > 0 {
		fmt.Fprintf(w, "%s with several versions: `ckptfs remote conflicts` lists them\n",
			text.Plural(int64(*s.Conflicts), "name"))
	}
}

func (c *commands) policy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy ROLE URL",
		Short: "Print the least that credentials need to be allowed: of a reader, writer, collector; or a bucket's policy",
		Long: `Prints a policy of AWS in JSON. ROLE is

    reader      may read
    writer      may publish as well
    collector   may remove garbage as well
    bucket      no role: the policy of the bucket itself, which keeps writers from overwriting what never changes`,
		Args: c.args("ROLE URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := remote.ParseURL(args[1])
			if err == nil {
				err = writable(a)
			}
			if err != nil {
				return c.Usage(cmd, err.Error())
			}
			policy := a.BucketPolicy()
			if args[0] != "bucket" {
				if policy, err = a.Policy(remote.Role(args[0])); err != nil {
					return c.Usage(cmd, err.Error()+", bucket")
				}
			}
			return c.Show(json.RawMessage(policy), func(w io.Writer) { io.WriteString(w, policy) })
		},
	}
	return cmd
}
