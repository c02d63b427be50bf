package models

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func matchCmd(s Shell) *cobra.Command {
	in, like, exclude, pin, full, asKnown := "", "", "", "", false, false
	cmd := &cobra.Command{
		Use:   "match (GRAPH.json [--in PATH] | --like FILE)",
		Short: "Find the stored model most like a new architecture",
		Long: `Finds the model whose architecture has the longest prefix in common with that of GRAPH.json: layers that are the same,
with all layers that lead to them. Prints its path and how many layers that is, and with --full which layers, and the
tensors to read for them.

The architecture of a stored model is read from MODEL.arch.json, arch.json or graph.json beside it, or from a
model.onnx, .pt2 or .keras file, or guessed from its tensors. Only architectures of one kind are compared. docs/match.md
has the format of GRAPH.json. Of models with equally much in common the one with the greatest metric "quality" is
printed, then the latest.

With --pin NAME the answer is also in the mount's .ckptfs/query/NAME, as JSON. The model's tensors stay readable in
.ckptfs/query/NAME.safetensors, even if the model is removed, until .ckptfs/query/NAME is removed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := control.MatchOptions{ExcludeRun: exclude, AsKnown: asKnown, Pin: pin}
			where := in
			switch {
			case like != "" && len(args) == 0:
				where = like
			case like == "" && len(args) == 1:
				var err error
				if o.Graph, err = readGraph(args[0]); err != nil {
					return err
				}
				if where == "" {
					where = filepath.Dir(args[0])
				}
			default:
				return exit.Wrong(cmd, "match takes a GRAPH.json, or --like FILE alone")
			}
			return s.Look(cmd.Context(), where, func(c *control.Client, at *place.Place) error {
				if like != "" {
					o.Like = at.Path
				}
				if pin != "" && place.MountpointOf(at.Store) == "" {
					return exit.With(exit.NotStore, fmt.Errorf("%s: store %s is not mounted, and what is pinned is read in a mount: `ckptfs mount %s MOUNTPOINT` first", where, at.Store, text.Word(at.Store)))
				}
				m, err := c.Match(cmd.Context(), o)
				if err != nil {
					return err
				}
				return s.Show(m, func(w io.Writer) { printMatch(w, at, m, full) })
			})
		},
	}
	cmd.Flags().StringVar(&in, "in", "", "a path in the mount, or the store, to look in; default: where GRAPH.json is")
	cmd.Flags().StringVar(&like, "like", "", "a stored model, whose architecture is asked about")
	cmd.Flags().StringVar(&exclude, "exclude-run", "", "pass over the models of this run")
	cmd.Flags().StringVar(&pin, "pin", "", "keep the model readable in .ckptfs/query/NAME.safetensors, until .ckptfs/query/NAME is removed")
	cmd.Flags().BoolVar(&asKnown, "as-known", false, "answer from what the daemon knows, without looking first what has changed")
	cmd.Flags().BoolVar(&full, "full", false, "print the layers and the tensors")
	return cmd
}

// readGraph reads a file that may be too large.
func readGraph(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := io.ReadAll(io.LimitReader(f, control.MaxGraph+1))
	if err == nil && len(p) > control.MaxGraph {
		err = fmt.Errorf("%s is over %s: it is no graph; --like takes a stored model", path, text.Bytes(control.MaxGraph))
	}
	return p, err
}

func pinnedText(p *place.Place, m *control.Match) string {
	if m.Pinned == "" {
		return ""
	}
	if p.Mount == nil {
		return filepath.Join(place.MountpointOf(p.Store), m.Pinned)
	}
	return p.Full(m.Pinned)
}

func printMatch(w io.Writer, p *place.Place, a *control.MatchAnswer, full bool) {
	m := a.Match
	if m == nil {
		fmt.Fprintf(w, "none: no model of kind %s has a root in common\n", a.GraphKind)
		return
	}
	exact := ""
	if !m.Exact {
		exact = ", at least: the search was cut short"
	}
	text.Pairs(w,
		"model", text.Printable(p.Full(m.Path)),
		"layers", fmt.Sprintf("%d of %d%s", m.Length, a.Vertices, exact),
		"tensors", fmt.Sprintf("%d, %s", len(m.Tensors), text.Bytes(m.Bytes)),
		"kind", a.GraphKind,
		"pinned", text.Printable(pinnedText(p, m)),
	)
	if !full {
		return
	}
	rows := make([][]string, len(m.Pairs))
	for i, pair := range m.Pairs {
		rows[i] = []string{text.Printable(pair[0]), text.Printable(pair[1])}
	}
	fmt.Fprintln(w)
	text.Table(w, []string{"LAYER", "STORED"}, rows)
	if len(m.Tensors) > 0 {
		rows = rows[:0]
		for _, t := range m.Tensors {
			rows = append(rows,
				[]string{text.Printable(t.New), text.Printable(t.Stored), text.Bytes(t.Bytes)})
		}
		fmt.Fprintln(w)
		text.Table(w, []string{"TENSOR", "STORED", ">BYTES"}, rows)
	}
}
