// Package ui is the command ui: pages for a browser about the store, its runs, steps, files and tensors.
//
// Pages are made here, by html/template; a little script draws the charts and fetches what takes longer. All
// of it is in the program. Each page has a URL without secrets, the command that prints the same, and with
// ?json=1 the answers that it is made from, as the commands print them with --json.
package ui

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/ui/known"
	"ckptfs/cmd/ckptfs/ui/moves"
	"ckptfs/fs/control"
)

// Shell is the program to the command.
type Shell interface {
	Show(v any, human func(io.Writer)) error
	Usage(cmd *cobra.Command, message string) error
	// Look connects to the volume that a path lies in, to change nothing; Change to change it.
	Look(ctx context.Context, path string, do func(c *control.Client, at *place.Place) error) error
	Change(ctx context.Context, path string, do func(c *control.Client, at *place.Place) error) error
}

// Command is the command.
func Command(s Shell) *cobra.Command {
	var (
		where   string
		noToken bool
		write   bool
	)
	cmd := &cobra.Command{
		Use:   "ui PATH",
		Short: "Serve pages about a store: runs, curves, tensors, lineage, space",
		Long: `Serves pages about the store of PATH to a browser on this machine, and prints their URL: what the store holds and how it
was made small, runs with the curves of their metrics, which layers moved in which step, the tensors of files, what
differs, where models come from, and what removing something gives back. It ends with Ctrl-C.

The URL has a random token, without which no page is shown. On a machine far away, forward the port:

    ckptfs ui --listen 127.0.0.1:8700 /mnt/ckpt         # there
    ssh -L 8700:127.0.0.1:8700 that-machine             # here; then open the URL

--listen unix:/path/of/a/socket has others than its owner shut out by the filesystem. Nothing can be changed from the
pages except with --write. A store that is not mounted is open, and cannot be mounted, until the command ends.`,
		Args: args.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			ln, loopback, err := listen(where)
			if err != nil {
				return err
			}
			defer ln.Close()
			if noToken && !loopback {
				return s.Usage(cmd, "--no-token is for addresses of this machine alone, such as 127.0.0.1:8700")
			}
			token := ""
			if !noToken {
				token = newToken()
			}
			open := s.Look
			if write {
				open = s.Change
			}
			if !loopback {
				fmt.Fprintln(cmd.ErrOrStderr(), "ckptfs: everybody who has this URL can look at the store, and the "+
					"connection is not encrypted: docs/pages.md has a tunnel")
			}
			return open(cmd.Context(), args[0], func(c *control.Client, at *place.Place) error {
				return run(cmd.Context(), s, ln, newServer(cmd.Context(), c, at, token, write))
			})
		},
	}
	cmd.Flags().StringVar(&where, "listen", "127.0.0.1:0", "HOST:PORT or unix:PATH to answer at; port 0 is any that is free")
	cmd.Flags().BoolVar(&noToken, "no-token", false, "let everybody on this machine in")
	cmd.Flags().BoolVar(&write, "write", false, "offer sync, prune, evict and hydrate on the pages")
	return cmd
}

// started is what the command prints.
type started struct {
	URL   string `json:"url"`
	Store string `json:"store"`
	Write bool   `json:"write"`
}

func run(ctx context.Context, s Shell, ln net.Listener, srv *server) error {
	go func() { // so that the pages that take longest are quick, too
		srv.runs.Warm(ctx)
		_, _, _ = srv.origins.Get(ctx, known.Fresh, 0)
	}()
	out := started{URL: address(ln, srv.gate.token, srv.at.Path), Store: srv.at.Store, Write: srv.write}
	err := s.Show(out, func(w io.Writer) { fmt.Fprintf(w, "%s\n", out.URL) })
	if err != nil {
		return err
	}
	return serve(ctx, ln, srv.gate)
}

// server makes the pages of one store.
type server struct {
	life    context.Context // until the command ends
	c       *control.Client
	at      *place.Place
	write   bool
	gate    *gate
	runs    *known.Runs
	moves   *moves.Moves
	origins *known.Growing[graph]
	rooms   *known.Several[spaceOf, room]
	gone    *known.Several[string, control.Du]
	sizes   *known.Several[string, control.Du]

	promised promised
}

func newServer(life context.Context, c *control.Client, at *place.Place, token string, write bool) *server {
	s := &server{life: life, c: c, at: at, write: write, runs: known.New(life, c), moves: moves.New(life, c)}
	s.promised.all = map[string]*promise{}
	s.rooms, s.gone = known.GrowSeveral(life, s.count), known.GrowSeveral(life, s.goes)
	s.sizes = known.GrowSeveral(life, s.take)
	s.origins = known.Grow(life, s.grow)
	s.gate = &gate{token: token, forms: newToken(), next: s.routes()}
	return s
}
