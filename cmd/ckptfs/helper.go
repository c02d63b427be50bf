package main

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ckptfs/cmd/ckptfs/exit"
)

// helper is a call by another program instead of a person: mount(8), umount(8) or mount.fuse3(8). They fix
// the command line and what the exit codes mean.
type helper struct {
	args    []string // the same in our own words
	verbose bool     // success is told
}

// The exit codes of mount(8) and its helpers.
const (
	mountUsage       = 1
	mountInterrupted = 8
	mountFailed      = 32
)

// helperCode is an exit code of ours as mount(8) hands it on.
func helperCode(code int) int {
	switch code {
	case exit.OK:
		return 0
	case exit.Usage:
		return mountUsage
	case exit.Interrupted:
		return mountInterrupted
	}
	return mountFailed
}

// asHelper reads the command line of a helper; nil when it is none.
//
//	mount.ckptfs, mount.fuse.ckptfs      STORE DIR [-sfnvrw] [-N namespace] [-o options] [-t type]
//	umount.ckptfs, umount.fuse.ckptfs    DIR [-flnrv] [-N namespace] [-t type]
//	ckptfs                               STORE DIR -o options      from mount.fuse3 of ckptfs#STORE
func asHelper(name string, args []string, commands []*cobra.Command) (*helper, error) {
	name = filepath.Base(name)
	verb, _, dotted := strings.Cut(name, ".")
	switch {
	case dotted && verb == "mount":
		return mountHelper(args)
	case dotted && verb == "umount":
		return umountHelper(args)
	case len(args) == 4 && args[2] == "-o" && !isCommand(args[0], commands):
		return &helper{args: []string{"mount", "-o", args[3], "--", args[0], args[1]}}, nil
	}
	return nil, nil
}

func isCommand(word string, commands []*cobra.Command) bool {
	if strings.HasPrefix(word, "-") || word == "help" || word == "completion" {
		return true
	}
	for _, c := range commands {
		if c.Name() == word || c.HasAlias(word) {
			return true
		}
	}
	return false
}

// helperFlags are the words that mount(8) and umount(8) may say to any helper.
func helperFlags(name string) *pflag.FlagSet {
	f := pflag.NewFlagSet(name, pflag.ContinueOnError)
	f.Usage = func() {}
	f.BoolP("no-mtab", "n", false, "")
	f.BoolP("verbose", "v", false, "")
	f.StringP("namespace", "N", "", "")
	f.StringP("types", "t", "", "")
	return f
}

func mountHelper(args []string) (*helper, error) {
	f := helperFlags("mount.ckptfs")
	sloppy := f.BoolP("sloppy", "s", false, "")
	fake := f.BoolP("fake", "f", false, "")
	readOnly := f.BoolP("read-only", "r", false, "")
	f.BoolP("read-write", "w", false, "")
	options := f.StringArrayP("options", "o", nil, "")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	out := []string{"mount"}
	if *sloppy {
		out = append(out, "--sloppy")
	}
	if *fake {
		out = append(out, "--fake")
	}
	if *readOnly {
		*options = append(*options, "ro")
	}
	for _, o := range *options {
		out = append(out, "-o", o)
	}
	return &helper{args: append(append(out, "--"), f.Args()...), verbose: f.Changed("verbose")}, nil
}

// umountHelper runs for umount(8), which frees the mountpoint at once. A file that is not packed waits for
// the next mount.
func umountHelper(args []string) (*helper, error) {
	f := helperFlags("umount.ckptfs")
	force := f.BoolP("force", "f", false, "")
	lazy := f.BoolP("lazy", "l", false, "")
	f.BoolP("read-only", "r", false, "")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	out := []string{"umount", "--no-wait"}
	if *lazy {
		out = append(out, "--lazy")
	} else if *force {
		out = append(out, "--force")
	}
	return &helper{args: append(append(out, "--"), f.Args()...), verbose: f.Changed("verbose")}, nil
}
