package space

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/moby/sys/mountinfo"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/cmd/ckptfs/heap"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/estimate"
)

// Outside is the program to commands about what is in no store.
type Outside interface {
	Show(v any, human func(io.Writer)) error
	// Usage is the error of a command line that makes no sense.
	Usage(cmd *cobra.Command, message string) error
	// Store is the store that a path leads to; an error: to none.
	Store(path string) (string, error)
	// IsStore reports whether a folder is a store.
	IsStore(dir string) bool
	// Saying shows progress on a terminal, with what there is to say meanwhile; update is nil elsewhere.
	Saying(doing func() string) (update func(control.Progress), done func())
	// Partial is the error of a command that has named what it left.
	Partial() error
}

// memory is what an estimate may take: what a mount may take by default.
var memory = heap.Budget{All: 512 << 20}

// Estimate is the command estimate.
func Estimate(s Outside) *cobra.Command {
	var full bool
	cmd := &cobra.Command{
		Use:   "estimate PATH…",
		Short: "Say what folders would take in a store, without one",
		Long: `Says what the files below PATH, a folder or a file outside of any store, would take in a store:

    equal      what another file has too
    delta      stored as the difference from an earlier version
    low rank   stored as a difference that is a merged adapter
    rounding   what rounding another tensor to half precision gives
    recipe     computed from other tensors: quantised, cut or in another order
    alone      compressed by itself, or left as it is

It packs samples and keeps nothing. It ends when they agree to within a hundredth of all bytes, and tells the range.
Ctrl-C ends it, too: the answer so far is printed. With --full, and where there is less than 1 GiB, everything is read,
and the answer is what a store takes. Of content that is equal under other names, samples find less than is there.

Files count once, whatever links lead to them. Files that cannot be read are named, and do not count (exit code 7).
Nothing is written but temporary files in TMPDIR.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return s.Usage(cmd, "estimate takes a path or more")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, p := range args {
				if _, err := s.Store(p); err == nil {
					abs, _ := filepath.Abs(p) // its place was found
					return control.Invalid("%s is in a store already: `ckptfs du %s` says what that takes", p, text.Word(abs))
				}
			}
			o := estimate.Options{Full: full, Within: 0.01, LayoutBytes: memory.LayoutBytes()}
			heap.NewLimit(memory.Limit())
			var err error
			if o.Leave, err = stores(s); err != nil {
				return err
			}
			if o.Temp, err = disk.OpenFolder(os.TempDir()); err != nil {
				return fmt.Errorf("%w: TMPDIR is to name a folder for temporary files", err)
			}
			defer o.Temp.Close()
			saying := soFar(nil)
			update, done := s.Saying(func() string { return saying })
			defer done()
			if update != nil {
				o.Progress = func(p control.Progress, so *estimate.Answer) {
					saying = soFar(so)
					update(p)
				}
			}
			answer, err := estimate.Run(cmd.Context(), args, o)
			if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
				err = fmt.Errorf("%w: temporary files lie in %s: free room there, or have TMPDIR name a folder on another disk", err, o.Temp.Path())
			}
			if err != nil {
				return err
			}
			done()
			if err := s.Show(answer, func(w io.Writer) { estimated(w, answer) }); err != nil {
				return err
			}
			if answer.LeftFiles > 0 {
				return s.Partial()
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "read everything")
	return cmd
}

// stores returns what says why an estimate leaves a folder out.
func stores(s Outside) (func(dir string) string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("fuse.ckptfs"))
	if err != nil {
		return nil, fmt.Errorf("read the list of mounts: %w", err)
	}
	mounted := map[string]bool{}
	for _, m := range mounts {
		mounted[m.Mountpoint] = true
	}
	return func(dir string) string {
		switch {
		case mounted[dir]:
			return "it is the mount of a store"
		case s.IsStore(dir):
			return "it is a store"
		}
		return ""
	}, nil
}

// soFar is an estimate in a few words.
func soFar(a *estimate.Answer) string {
	if a == nil {
		return "estimating"
	}
	return fmt.Sprintf("%s would take %s (%s to %s)", text.Bytes(a.Bytes), text.Bytes(a.StoredBytes),
		text.Bytes(a.LowBytes), text.Bytes(a.HighBytes))
}

// estimated prints what files would take in a store.
func estimated(w io.Writer, a *estimate.Answer) {
	text.Pairs(w,
		"files", fmt.Sprintf("%s, %s", humanize.Comma(int64(a.Files)), text.Bytes(a.Bytes)),
		"would take", takes(a),
		"saves", text.Bytes(max(0, a.Bytes-a.StoredBytes)),
		"read", read(a),
		"links", links(a),
		"changed", changed(a),
	)
	parts(w, "KIND", a.Kinds, false)
	parts(w, "FORMAT", a.Formats, true)
	groups(w, a.Groups)
	if a.LeftFiles == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s left out:\n", text.Plural(int64(a.LeftFiles), "file"))
	for _, l := range a.Left {
		fmt.Fprintf(w, "  %s: %s\n", text.Printable(l.Path), l.Reason)
	}
	if more := a.LeftFiles - len(a.Left); more > 0 {
		fmt.Fprintf(w, "  and %s more\n", humanize.Comma(int64(more)))
	}
}

func percent(part, of int64) string {
	if of == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(of))
}

func takes(a *estimate.Answer) string {
	s := text.Bytes(a.StoredBytes)
	if a.Bytes > 0 {
		s += ", " + percent(a.StoredBytes, a.Bytes)
	}
	if !a.Complete {
		s += fmt.Sprintf(", most likely %s to %s", text.Bytes(a.LowBytes), text.Bytes(a.HighBytes))
	}
	return s
}

func read(a *estimate.Answer) string {
	took := time.Duration(a.Seconds * float64(time.Second)).Round(100 * time.Millisecond)
	if a.Complete {
		return fmt.Sprintf("everything, in %s", took)
	}
	return fmt.Sprintf("%s, in %s; --full reads everything", text.Bytes(a.ReadBytes), took)
}

func links(a *estimate.Answer) string {
	var not []string
	if a.Links > 0 {
		not = append(not, text.Plural(int64(a.Links), "link")+" to folders")
	}
	if a.Outside > 0 {
		not = append(not, text.Plural(int64(a.Outside), "link")+" to files outside of the paths")
	}
	if len(not) == 0 {
		return ""
	}
	return strings.Join(not, ", ") + " not followed"
}

func changed(a *estimate.Answer) string {
	if a.Changed == 0 {
		return ""
	}
	return text.Plural(int64(a.Changed), "file") + " changed meanwhile, and left out"
}

func parts(w io.Writer, head string, all []estimate.Part, files bool) {
	if len(all) == 0 {
		return
	}
	heads := []string{head, ">SIZE", ">TAKES", ">"}
	if files {
		heads = []string{head, ">FILES", ">SIZE", ">TAKES", ">"}
	}
	var rows [][]string
	for _, p := range all {
		row := []string{text.Printable(p.Name)}
		if files {
			row = append(row, humanize.Comma(int64(p.Files)))
		}
		rows = append(rows, append(row, text.Bytes(p.Bytes), text.Bytes(p.StoredBytes),
			percent(p.StoredBytes, p.Bytes)))
	}
	fmt.Fprintln(w)
	text.Table(w, heads, rows)
}

func groups(w io.Writer, all []estimate.Group) {
	if len(all) == 0 {
		return
	}
	var rows [][]string
	for _, g := range all {
		rows = append(rows, []string{
			fmt.Sprintf("%s and %s like it", text.Printable(g.Name), humanize.Comma(int64(g.Models-1))),
			humanize.Comma(int64(g.Files)), text.Bytes(g.Bytes), text.Bytes(g.StoredBytes),
			percent(g.StoredBytes, g.Bytes), "mostly " + g.How,
		})
	}
	fmt.Fprintln(w)
	text.Table(w, []string{"RELATIVES", ">FILES", ">SIZE", ">TAKES", ">", "THE OTHERS"}, rows)
}
