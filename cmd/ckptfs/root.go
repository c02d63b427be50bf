package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"ckptfs/cas/simd"
	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/files"
	"ckptfs/cmd/ckptfs/inout"
	"ckptfs/cmd/ckptfs/man"
	"ckptfs/cmd/ckptfs/models"
	"ckptfs/cmd/ckptfs/policy"
	"ckptfs/cmd/ckptfs/remote"
	"ckptfs/cmd/ckptfs/space"
	"ckptfs/cmd/ckptfs/tensors"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/cmd/ckptfs/ui"
	"ckptfs/fs/control"
)

// app is what all commands share.
type app struct {
	out, err io.Writer
	args     []string // of the whole command line, without the program's name
	json     bool
	foreign  bool // stores of other users are opened
	tty      bool // err is a terminal
}

// start executes the command line of a person or of mount(8), and returns the exit code that either expects.
// argv begins with the name that the program was called by.
func start(ctx context.Context, argv []string, out, errw io.Writer) int {
	a := &app{err: errw}
	h, err := asHelper(argv[0], argv[1:], a.root().Commands())
	if err != nil {
		fmt.Fprintf(errw, "%s: %v\n", filepath.Base(argv[0]), err)
		return mountUsage
	}
	if h == nil {
		return run(ctx, argv[1:], out, errw)
	}
	if !h.verbose {
		out = io.Discard
	}
	return helperCode(run(ctx, h.args, out, errw))
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, out, errw io.Writer) int {
	sink := text.NewSink(out)
	a := &app{out: sink, err: errw, args: args}
	if f, ok := errw.(*os.File); ok {
		a.tty = term.IsTerminal(int(f.Fd()))
	}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(sink)
	root.SetErr(errw)
	err := simd.Check()
	if err == nil {
		err = exit.CutOff(ctx, root.ExecuteContext(ctx))
	}
	lost := sink.Err()
	if errors.Is(lost, syscall.EPIPE) || errors.Is(err, lost) {
		lost = nil // its reader wants no more; or it is told already
	}
	if err == nil {
		err, lost = lost, nil
	}
	if lost != nil && !a.json {
		a.complain(lost)
	}
	if err != nil {
		a.complain(err)
	}
	return exit.Code(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:     "ckptfs",
		Short:   "Store machine-learning checkpoints once, see them as files",
		Version: version, // --version
		Long: `ckptfs mounts a store of checkpoints as an ordinary file system. Programs save and load as on any disk;
underneath, every tensor is stored once, compressed.

    ckptfs mount ./store /mnt/ckpt
    ckptfs stats /mnt/ckpt
    ckptfs umount /mnt/ckpt

Commands take a path inside a mount or a store's folder and work mounted and unmounted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			msg := fmt.Sprintf("no command %q", args[0])
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				slices.Sort(near)
				msg += "; is it " + strings.Join(near, " or ") + "?"
			}
			return exit.Wrong(cmd, msg)
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print the result as one JSON object, and errors too")
	root.PersistentFlags().BoolVar(&a.foreign, "foreign", false, "open a store that belongs to another user than you and root; that user has to be trusted")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.Wrong(cmd, args.Flag(err).Error()+nearFlag(cmd, err))
	})
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		completes := strings.HasPrefix(cmd.Name(), "__") // of what begins with ""
		if slices.Contains(args, "") && !completes {
			return exit.Wrong(cmd, "an argument is empty: is a variable not set?")
		}
		return nil
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	for _, g := range a.groups() {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.AddCommand(exit.Topic(), man.Command())
	root.SetHelpCommandGroupID("mount")
	return root
}

// nearFlag suggests a flag for one that a command does not have, as cobra does for commands.
func nearFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	flags := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	near := flags.SuggestionsFor(unknown.GetSpecifiedName())
	if len(near) == 0 {
		return ""
	}
	slices.Sort(near)
	return "; is it --" + strings.Join(near, " or --") + "?"
}

// group is one list of the commands that --help prints.
type group struct {
	id, title string
	commands  []*cobra.Command
}

// groups are all commands, in the order of the help. Within a group cobra sorts them.
func (a *app) groups() []group {
	return []group{
		{"mount", "Mount:", append(inout.Commands(places{shell{a}}), a.mountCmd(), a.umountCmd(), a.syncCmd(),
			a.statusCmd(), a.upgradeCmd(), a.versionCmd())},
		{"look", "Look:", slices.Concat(files.Commands(shell{a}), remote.Extend(shell{a}, a.statsCmd()),
			tensors.Commands(shell{a}), []*cobra.Command{ui.Command(shell{a})})},
		{"runs", "Runs and models:", models.Commands(shell{a})},
		{"space", "Space:", append(policy.Commands(shell{a}), space.Du(shell{a}), a.evictCmd(),
			a.hydrateCmd(), models.Forget(shell{a}), remote.Extend(shell{a}, a.pruneCmd())[0],
			a.compactCmd(), space.Estimate(shell{a}))},
		{"repair", "Repair:", remote.Extend(shell{a}, a.checkCmd(), a.repairCmd())},
		{"remote", "Many machines:", append(remote.Commands(shell{a}), remote.Command(shell{a}))},
	}
}

// interrupted is a message in which the user's signal is called by what it did.
func interrupted(message string) string {
	return strings.ReplaceAll(message, context.Canceled.Error(), "interrupted")
}

// complain prints an error as the user asked to have it.
func (a *app) complain(err error) {
	if a.json {
		e, code := control.AsError(err), exit.Code(err)
		if word, ok := exit.Words[code]; ok && e.Code == control.CodeInternal {
			e.Code = word
		}
		e.Message = interrupted(e.Message)
		_ = json.NewEncoder(a.err).Encode(map[string]any{"error": e, "exit_code": code})
		return
	}
	fmt.Fprintf(a.err, "ckptfs: %s\n", text.Printable(interrupted(err.Error())))
	if do := control.AsError(err).Do; do != "" {
		fmt.Fprintf(a.err, "ckptfs: %s\n", text.Printable(do))
	}
	var usage *exit.UsageError
	if errors.As(err, &usage) {
		fmt.Fprintf(a.err, "Usage: %s\nSee %s --help.\n", usage.Command.UseLine(),
			usage.Command.CommandPath())
	}
}
