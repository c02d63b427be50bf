package main

import (
	"fmt"
	"io"
	"os"

	"github.com/moby/sys/mountinfo"
	"github.com/spf13/cobra"

	"ckptfs/cas/disk"
	"ckptfs/cmd/ckptfs/heap"
	"ckptfs/cmd/ckptfs/space"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/estimate"
)

func estimateCmd(a *app) *cobra.Command {
	o := estimate.Options{Within: 0.01}
	cmd := &cobra.Command{
		Use:   "estimate PATH...",
		Short: "Say what folders would take in a store, without one",
		Long: `Says what the files below PATH, a folder or a file outside of any store, would take in a store:

    equal      what another file has too
    delta      stored as the difference from an earlier version
    low rank   stored as a difference that is a merged adapter
    rounding   what rounding another tensor to half precision gives
    alone      compressed by itself, or left as it is

It packs samples and keeps nothing. It ends when the answer is sure to within a hundredth of all bytes. Ctrl-C ends it,
too: the answer so far is printed. With --full everything is read, and the answer is what a store takes. Of content that
is equal under other names, samples find less than is there.

Files count once, whatever links lead to them. Files that cannot be read are named, and do not count (exit code 7).
Nothing is written but temporary files in TMPDIR.`,
		Args: somePaths,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, p := range args {
				if _, err := find(p); err == nil {
					return fmt.Errorf("%s is in a store already: `ckptfs stats %[1]s` says what that takes", p)
				}
			}
			var err error
			if o.Leave, err = storesIn(); err != nil {
				return err
			}
			if o.Temp, err = disk.OpenFolder(os.TempDir()); err != nil {
				return err
			}
			defer o.Temp.Close()
			if a.tty && !a.json {
				saying := "estimating"
				update, done := text.ProgressSaying(a.err, func() string { return saying })
				defer done()
				o.Progress = func(p control.Progress, so *estimate.Answer) {
					saying = space.SoFar(so)
					update(p)
				}
			}
			budget := heap.Budget{All: defaultMemory}
			heap.NewLimit(budget.Limit())
			o.LayoutBytes = budget.LayoutBytes()
			answer, err := estimate.Run(cmd.Context(), args, o)
			if err != nil {
				return err
			}
			if err := a.show(answer, func(w io.Writer) { space.Estimate(w, answer) }); err != nil {
				return err
			}
			if answer.LeftFiles > 0 {
				return errPartial
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&o.Full, "full", false, "read everything")
	return cmd
}

// storesIn returns what says why an estimate leaves a folder out.
func storesIn() (func(dir string) string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter(fsType))
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
		case isStore(dir):
			return "it is a store"
		}
		return ""
	}, nil
}
