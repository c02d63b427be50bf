package tensors

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

// notVerified is the error of what does not follow.
func notVerified(v *control.Verified) error {
	why := "and 90 % have to"
	if v.Share >= control.LeastFollows {
		why = "but of that more than 15 % are stored all the same"
	}
	return exit.With(exit.Failure, fmt.Errorf("it does not follow: as far as was found, %s of it does, %s",
		text.Percent(v.Share), why))
}

func verifyCmd(s Shell) *cobra.Command {
	var froms []string
	cmd := &cobra.Command{
		Use:   "verify A --from B",
		Short: "Tell whether a file follows from another: quantised, merged or converted from it",
		Long: `Tells which share of the bytes of A's tensors follows from the tensors of B, and answers yes or no: yes (exit code 0) if
at least 90 % of them do, with at most 15 % of these left to be told (scales, corrections, coefficients). Otherwise the
exit code is 1. A and B are files, steps or folders of one store; those of B are to be packed. For a merge B is a folder
that all its parents lie in.

It computes what a store would store A as, and compares each byte. So yes proves that A is a function of B, and of as
many bits as are printed. It does not say which was there first. No says that no such function was found. Tensors of
less than 4 KiB follow if B has the same, and are not looked at otherwise.

    ckptfs verify models/x-Q4_K_M.gguf --from models/x`,
		Args: args.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(froms) != 1 || froms[0] == "" {
				return exit.Wrong(cmd, "verify takes a path, and one --from with what it may follow from: of a merge the "+
					"folder that all its parents lie in")
			}
			return s.LookTwo(cmd.Context(), args[0], froms[0], func(c *control.Client, at *place.Place,
				other string) error {
				update, done := s.Progress("verifying")
				v, err := c.Verify(cmd.Context(), at.Path, other, update)
				done()
				if err != nil {
					return err
				}
				if err := s.Show(v, func(w io.Writer) { printVerified(w, v) }); err != nil || v.Follows {
					return err
				}
				return notVerified(v)
			})
		},
	}
	cmd.Flags().StringArrayVar(&froms, "from", nil, "the one file, step or folder `B` that A may follow from")
	return cmd
}

func printVerified(w io.Writer, v *control.Verified) {
	answer := "no"
	if v.Follows {
		answer = "yes"
	}
	fmt.Fprintf(w, "%s: %s of the bytes of %s of %s follow from %s, given %s (%d bits)\n", answer,
		text.Percent(v.Share), text.Plural(int64(v.Tensors), "tensor"), text.Printable(v.A),
		text.Printable(v.B), text.Bytes(v.StoredBytes), v.FreeBits)
	if len(v.Others) > 0 {
		fmt.Fprintln(w)
		printRefs(w, "DOES NOT FOLLOW", v.Others, true)
	}
	if v.More > 0 {
		fmt.Fprintf(w, "and %s more\n", text.Plural(int64(v.More), "tensor"))
	}
}
