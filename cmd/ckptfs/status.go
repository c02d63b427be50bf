package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func (a *app) statusCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "status PATH",
		Short: "Show what the daemon does: mode, queue, failures",
		Long: `Prints where and how the store of PATH is mounted, the queue of files to pack, how much of --hot-size is in use, what
failed and will be tried again, and what the start repaired. The exit code is 1 while a file may have lost bytes.`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), args[0], readOnly, func(s *session) error {
				st, err := s.Status(cmd.Context())
				if err != nil {
					return err
				}
				return st.Loss.After(a.show(st, func(w io.Writer) { printStatus(w, st) }))
			})
		},
	}
}

func printStatus(w io.Writer, st *control.Status) {
	mounted, mode, process := "no", "", ""
	if st.Mode != control.ModeUnmounted {
		mounted = text.Printable(st.Mountpoint)
		mode = withReason(st.Mode, st.ModeReason)
		process = fmt.Sprintf("%d since %s, ckptfs %s", st.PID, st.Started.Format(time.DateTime), st.Version)
	}
	metrics := ""
	if st.Metrics != "" {
		metrics = "http://" + st.Metrics + "/metrics"
	}
	unpacked := text.Bytes(st.UnpackedBytes)
	if st.MaxUnpacked > 0 {
		unpacked += ", closes wait from " + text.Bytes(st.MaxUnpacked)
	}
	if st.WaitingCloses > 0 {
		unpacked += fmt.Sprintf(", %s waiting", text.Plural(int64(st.WaitingCloses), "close"))
	}
	hot := text.Bytes(st.HotSize)
	if st.HotSize < 0 {
		hot = "not bounded"
	}
	ids := ""
	if u := st.Unidentified; u.Files > 0 || u.More {
		ids = text.Plural(int64(u.Files), "file") + " without"
		if u.More {
			ids += ", and more"
		}
	}
	text.Pairs(w,
		"store", text.Printable(st.Store),
		"mounted", mounted,
		"mode", mode,
		"process", process,
		"metrics", metrics,
		"queue", fmt.Sprintf("%s, %s", text.Plural(int64(st.Queue.Files), "file"),
			text.Bytes(st.Queue.Bytes)),
		"packing", namesOf(st.Packing),
		"waits", st.PackingWaits,
		"not packed", unpacked,
		"artifact ids", ids,
		"resident", fmt.Sprintf("%s of %s", text.Bytes(st.ResidentBytes), hot),
		"open files", fmt.Sprint(st.OpenFiles),
		"recovery", text.Printable(st.Recovery),
		"remote", text.Remote(st.Remote),
	)
	for _, s := range st.Sidecars {
		fmt.Fprintf(w, "refused: %s\n", text.Printable(s))
	}
	if st.MoreSidecars > 0 {
		fmt.Fprintf(w, "refused: %d more\n", st.MoreSidecars)
	}
	text.NamePlain(w, st)
	text.NameFailures(w, st)
}

// namedFiles is how many files a line names: small ones are packed in groups of 64.
const namedFiles = 4

// namesOf names the first of some files, and says how many more there are.
func namesOf(paths []string) string {
	var b strings.Builder
	for i, p := range paths {
		switch {
		case i == namedFiles && len(paths) > i+1:
			fmt.Fprintf(&b, " and %d more", len(paths)-i)
			return b.String()
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(text.Printable(p))
	}
	return b.String()
}

func withReason(mode, reason string) string {
	if reason == "" {
		return mode
	}
	return fmt.Sprintf("%s (%s)", mode, text.Printable(reason))
}
