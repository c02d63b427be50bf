package main

import (
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"ckptfs/cmd/ckptfs/exit"
)

// --help is six lists: each command but the topics and what is hidden is in one of them.
func TestHelpGroups(t *testing.T) {
	root := (&app{out: io.Discard, err: io.Discard}).root()
	if n := len(root.Groups()); n != 6 {
		t.Errorf("%d groups, want 6", n)
	}
	for _, c := range root.Commands() {
		if c.Runnable() && !c.Hidden && c.GroupID == "" {
			t.Errorf("%s is in no group", c.Name())
		}
	}
}

// Help texts fit a terminal of 120 columns.
func TestHelpColumns(t *testing.T) {
	for _, c := range (&app{out: io.Discard, err: io.Discard}).root().Commands() {
		for line := range strings.Lines(c.Long) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 120 {
				t.Errorf("%s: a line of %d columns: %s", c.Name(), n, line)
			}
		}
	}
}

// What a flag takes is one word in its help.
func TestHelpOfFlags(t *testing.T) {
	for _, c := range (&app{out: io.Discard, err: io.Discard}).root().Commands() {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); strings.Contains(name, " ") {
				t.Errorf("%s --%s takes %q", c.Name(), f.Name, name)
			}
		})
	}
}

// A flag that is nearly right is answered with the right one, and --version is a flag too.
func TestFlagsNearby(t *testing.T) {
	code, _, errs := command(t, "mount", "--hot-sise", "1GiB", "s", "m")
	if code != exit.Usage || !strings.Contains(errs, "--hot-sise; is it --hot-size?") {
		t.Errorf("exit %d, %s", code, errs)
	}
	code, _, errs = command(t, "mount", "--nothing-like-it")
	if code != exit.Usage || strings.Contains(errs, "is it") {
		t.Errorf("exit %d, %s", code, errs)
	}
	for _, flag := range []string{"--version", "-v"} {
		if code, out, errs := command(t, flag); code != exit.OK || !strings.Contains(out, version) {
			t.Errorf("%s: exit %d, %s%s", flag, code, out, errs)
		}
	}
}

// A flag with a wrong value is answered with its name, the value and what it takes.
func TestFlagsWrong(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"prune", "--grace", "foo", "m"}, `--grace: "foo" is not a time, such as 0, 90s, 24h or 7d`},
		{[]string{"prune", "--grace=-5s", "m"}, `--grace: "-5s" is not a time, such as 0, 90s, 24h or 7d`},
		{[]string{"forget", "--keep-last", "x", "r"}, `--keep-last: "x" is not a whole number, such as 3`},
		{[]string{"forget", "--dry-run=x", "r"}, `--dry-run: "x" is not true or false`},
		{[]string{"status", "--watch=x", "m"}, `--watch: "x" is not a time, such as 90s, 5m or 24h`},
		{[]string{"prune", "--max-unused", "x", "m"}, "--max-unused: "},
	} {
		code, _, errs := command(t, c.args...)
		if code != exit.Usage || !strings.Contains(errs, c.want) || strings.Contains(errs, "parsing") {
			t.Errorf("%q: exit %d, %s", c.args, code, errs)
		}
	}
}
