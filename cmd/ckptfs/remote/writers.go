package remote

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/survey"
	"ckptfs/cmd/ckptfs/text"
)

// writerState is what writers prints of one.
type writerState struct {
	Writer   record.Writer `json:"writer"`
	Commits  int64         `json:"commits"`
	Last     *time.Time    `json:"last,omitempty"` // by its clock
	Entries  int64         `json:"entries"`
	Tables   int           `json:"tables"`
	Epoch    uint32        `json:"epoch"`
	Folded   bool          `json:"folded,omitempty"`
	Problems []string      `json:"problems,omitempty"`
}

func (c *commands) writers() *cobra.Command {
	return &cobra.Command{
		Use:   "writers PATH",
		Short: "List who publishes to a remote, and when each did last",
		Long: `Lists the heads of the remote. A head that cannot be read is named, and the exit code is then that of damage: see
check --remote. The names of a writer that published nothing for 30 days are moved to @archive by prune --remote; it
then publishes under a new name when it comes back.`,
		Args: c.args("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			j, err := c.joined(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			say, done := c.counts()
			r := survey.New(j.bucket, j.ID, say)
			problems := map[record.Writer][]string{}
			var bad error
			r.Bad = func(key string, w record.Writer, err error) {
				problems[w] = append(problems[w], fmt.Sprintf("%s: %v", key, err))
				bad = fmt.Errorf("%s: %s: %w", j.URL(), key, err)
			}
			_, err = r.Mark(cmd.Context())
			done()
			if err != nil {
				return fmt.Errorf("%s: %w", j.URL(), err)
			}
			all := writerStates(r, problems)
			if err := c.Show(all, func(w io.Writer) { printWriters(w, all, j.Writer) }); err != nil {
				return err
			}
			return bad
		},
	}
}

func writerStates(r *survey.Reading, problems map[record.Writer][]string) []writerState {
	all := []writerState{}
	for w := range problems {
		if r.Heads[w] == nil {
			all = append(all, writerState{Writer: w, Problems: problems[w]})
		}
	}
	for _, w := range slices.Sorted(maps.Keys(r.Heads)) {
		h := r.Heads[w]
		s := writerState{Writer: w, Commits: h.Sequence, Entries: h.Entries, Tables: len(h.Tables),
			Epoch:  h.Stamp,
			Folded: h.Folded, Problems: problems[w]}
		if h.Sequence > 0 {
			s.Last = &h.Time
		}
		all = append(all, s)
	}
	return all
}

func printWriters(w io.Writer, all []writerState, own record.Writer) {
	var rows [][]string
	for _, s := range all {
		last, note := "never", ""
		if s.Last != nil {
			last = s.Last.Local().Format(time.DateTime)
		}
		switch {
		case len(s.Problems) > 0:
			note = text.Printable(s.Problems[0])
		case s.Folded:
			note = "folded: its names are @archive's"
		case s.Writer == own:
			note = "this store"
		}
		rows = append(rows, []string{text.Printable(string(s.Writer)), last, humanize.Comma(s.Commits),
			humanize.Comma(s.Entries), note})
	}
	text.Table(w, []string{"WRITER", "LAST COMMIT", ">COMMITS", ">NAMES", ""}, rows)
}
