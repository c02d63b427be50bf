package main

import (
	"fmt"
	"io"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func (a *app) statsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "stats PATH",
		Short: "Show what is stored and what it costs",
		Long: `Prints what the store of PATH holds and what that costs on the disk:

    logical   the sizes of all files
    unique    the distinct chunks of packed files, before compression
    stored    segments (live and dead chunks, manifests) and index, as they lie on the disk
    local     bytes in the tree: plain files, and the local copies of packed ones ("resident_bytes" in JSON)
    ratio     logical bytes of packed files, divided by stored

The same follows for each run, a folder below runs/. UNIQUE is of the chunks that its files use, NEW of those
that no run listed above it uses.

The first answer after a mount reads every manifest. The daemon keeps it up to date for the later ones.`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return whole(a, cmd, args[0], readOnly, func(s *session) error {
				st, err := s.Stats(cmd.Context())
				if err != nil {
					return err
				}
				if st.Runs == nil {
					st.Runs = []control.RunStats{}
				}
				return a.show(st, func(w io.Writer) { printStats(w, st) })
			})
		},
	}
}

func printStats(w io.Writer, st *control.Stats) {
	ratio := ""
	if st.Ratio > 0 {
		ratio = fmt.Sprintf("%.2fx", st.Ratio)
	}
	deltas := ""
	if st.Deltas > 0 {
		deltas = fmt.Sprintf("%s, %s stored as %s", text.Plural(st.Deltas, "chunk"),
			text.Bytes(st.DeltaRawBytes), text.Bytes(st.DeltaBytes))
		if st.BaseBytes > 0 {
			deltas += fmt.Sprintf("; kept for them alone: %s", text.Bytes(st.BaseBytes))
		}
	}
	lost := ""
	if st.Lost > 0 {
		lost = fmt.Sprintf("%s may have lost bytes; `ckptfs check` names them", text.Plural(st.Lost, "file"))
	}
	remote := ""
	if st.RemoteBytes > 0 {
		remote = text.Bytes(st.RemoteBytes) + ", which is not here"
	}
	text.Pairs(w,
		"files", fmt.Sprintf("%s, %s packed", humanize.Comma(st.Files), humanize.Comma(st.Packed)),
		"lost", lost,
		"tensors", humanize.Comma(st.Tensors),
		"chunks", humanize.Comma(st.Chunks),
		"logical", fmt.Sprintf("%s, %s packed", text.Bytes(st.LogicalBytes), text.Bytes(st.PackedBytes)),
		"remote", remote,
		"unique", text.Bytes(st.UniqueBytes),
		"stored", fmt.Sprintf("%s (segments %s, of it dead %s; index %s)", text.Bytes(st.StoredBytes), text.Bytes(st.SegmentBytes),
			text.Bytes(st.DeadBytes), text.Bytes(st.IndexBytes)),
		"deltas", deltas,
		"local", fmt.Sprintf("%s, of it plain %s", text.Bytes(st.LocalBytes), text.Bytes(st.PlainBytes)),
		"ratio", ratio,
	)
	if len(st.Runs) == 0 {
		return
	}
	rows := make([][]string, 0, len(st.Runs))
	for _, r := range st.Runs {
		rows = append(rows, []string{text.Printable(r.Run), humanize.Comma(r.Steps), humanize.Comma(r.Files),
			text.Bytes(r.LogicalBytes),
			text.Bytes(r.UniqueBytes), text.Bytes(r.NewBytes)})
	}
	fmt.Fprintln(w)
	text.Table(w, []string{"RUN", ">STEPS", ">FILES", ">LOGICAL", ">UNIQUE", ">NEW"}, rows)
}
