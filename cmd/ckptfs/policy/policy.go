// Package policy has the commands about the rules of a store: policy, pin and unpin; and warm, which gets
// files into memory.
package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/linked"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/policy"
)

// Shell is the program to the commands of this package.
type Shell interface {
	// Show prints a result, as JSON if that was asked for, and Say a line on standard error.
	Show(v any, human func(io.Writer)) error
	Say(format string, args ...any)
	// Usage is the error of a command line that makes no sense.
	Usage(cmd *cobra.Command, message string) error
	// Progress shows on a terminal how far something is; done takes it away. update is nil elsewhere.
	Progress(doing string) (update func(control.Progress), done func())
	// Look connects to the volume that a path lies in, to change nothing, and Change to change it.
	Look(ctx context.Context, path string, do func(c *control.Client, at *place.Place) error) error
	Change(ctx context.Context, path string, do func(c *control.Client, at *place.Place) error) error
	// Left names what was left as it is, and Partial is the error of that.
	Left([]control.Skip)
	Partial() error
}

// Commands are policy, pin, unpin and warm.
func Commands(s Shell) []*cobra.Command {
	return []*cobra.Command{policyCmd(s), pinCmd(s), unpinCmd(s), warmCmd(s)}
}

func policyCmd(s Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy [PATH]",
		Short: "List the rules of a store, and what they cover",
		Long: `Prints the rules of the store that PATH, or the current folder, is in or is, with the files that each of them decides
about. They are lines of the file STORE/policy:

    ckptfs policy 1
    *.gguf          plain          # never packed
    runs/prod/**    hydrated       # always has its local copy, whatever --hot-size says
    serving/**      alone          # no deltas, no recipes: read without other files' chunks
    serving/**      read-once      # leaves memory when the last program closes it
    runs/**         drop-optimizer keep-last=2 older-than=7d    # what ckptfs forget --policy does

Patterns are those of .gitignore, over paths below the mount. Of the rules of one kind that cover a file the last one
decides; one that begins with ! says not. A rule is of files that are packed from now on: what was packed before stays
as it is. docs/policy.md says more.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "."
			if len(args) == 1 {
				path = args[0]
			}
			return s.Look(cmd.Context(), path, func(c *control.Client, _ *place.Place) error {
				p, err := c.Policy(cmd.Context(), true)
				if err != nil {
					return err
				}
				return show(s, p)
			})
		},
	}
	cmd.AddCommand(addCmd(s), removeCmd(s), loadCmd(s))
	return cmd
}

// inside gives a command the flag --in.
func inside(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().String("in", ".", "the store, or a path in it")
	return cmd
}

// change changes the rules of the store that --in says, and prints them.
func change(s Shell, cmd *cobra.Command, do control.PolicyChange) error {
	path, err := cmd.Flags().GetString("in")
	if err != nil {
		return err
	}
	return s.Change(cmd.Context(), path, func(c *control.Client, at *place.Place) error {
		if m := at.Mount; m != nil && do.Do == control.PolicyAdd {
			if below, ok := strings.CutPrefix(do.Pattern, m.Mountpoint+"/"); ok {
				first, _, _ := strings.Cut(strings.Trim(do.Pattern, "/"), "/")
				if _, err := c.Entry(cmd.Context(), first); errors.Is(err, fs.ErrNotExist) {
					return control.Invalid("%s: patterns are of paths below the mount's root: give /%s", do.Pattern, below)
				}
			}
		}
		p, err := c.ChangePolicy(cmd.Context(), do)
		if err != nil {
			return err
		}
		return show(s, p)
	})
}

func addCmd(s Shell) *cobra.Command {
	return inside(&cobra.Command{
		Use:   "add PATTERN RULE…",
		Short: "Add a rule behind all others",
		Long: `Adds a rule behind all others, in place of one of the same pattern and kind. RULE is plain, hydrated, alone,
read-once or drop-optimizer keep-last=N [older-than=7d].

    ckptfs policy add --in /mnt/ckpt '*.gguf' plain`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return s.Usage(cmd, "policy add takes a pattern and a rule")
			}
			return change(s, cmd, control.PolicyChange{Do: control.PolicyAdd, Pattern: args[0],
				Rule: strings.Join(args[1:], " ")})
		},
	})
}

func removeCmd(s Shell) *cobra.Command {
	return inside(&cobra.Command{
		Use:   "remove PATTERN [KIND]",
		Short: "Remove the rules of a pattern",
		Long:  "Removes the rules of exactly this PATTERN, of one kind or of all. What they did stays done.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return s.Usage(cmd, "policy remove takes a pattern, and the kind of the rule if not all are to go")
			}
			return change(s, cmd, control.PolicyChange{Do: control.PolicyRemove, Pattern: args[0],
				Rule: strings.Join(args[1:], "")})
		},
	})
}

func loadCmd(s Shell) *cobra.Command {
	return inside(&cobra.Command{
		Use:   "load",
		Short: "Read the file again that was edited by hand",
		Long: `Has the daemon read STORE/policy again. Nothing else looks whether it was edited. If it cannot be read the rules hold
that held before.`,
		Args: args.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return change(s, cmd, control.PolicyChange{Do: control.PolicyLoad})
		},
	})
}

// show prints rules.
func show(s Shell, p *control.Policy) error {
	err := s.Show(p, func(w io.Writer) {
		if len(p.Rules) == 0 {
			fmt.Fprintf(w, "%s has no rules\n", text.Printable(p.File))
			return
		}
		head, rows := []string{"PATTERN", "RULE"}, make([][]string, len(p.Rules))
		counted := p.Rules[0].Covered != nil
		if counted {
			head = append(head, ">FILES", ">SIZE", ">COPIES")
		}
		for i, r := range p.Rules {
			rows[i] = []string{text.Printable(r.Pattern), r.Rule}
			if c := r.Covered; counted && c != nil {
				rows[i] = append(rows[i], strconv.FormatInt(c.Files, 10), text.Bytes(c.Bytes),
					text.Bytes(c.ResidentBytes))
			}
		}
		text.Table(w, head, rows)
	})
	if err == nil && p.Problem != "" {
		err = fmt.Errorf("%s; the rules above are those that hold", p.Problem)
	}
	return err
}

// pinned is what pin and unpin print.
type pinned struct {
	Paths []string `json:"paths"` // relative to the mount's root
	control.Moved
	Mounted bool `json:"mounted"` // else the next mount hydrates them
}

func pinCmd(s Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "pin PATH…",
		Short: "Keep the local copy of files, whatever --hot-size says",
		Long: `Adds to the store's policy that the files at or below PATH keep their local copies, and restores those that are
missing. Such copies do not count against --hot-size. On a disk that runs full they are evicted last, with a warning in
the log, and come back once there is room. What is saved below PATH later is kept, too.

The rule is of the path: a file that is moved away is not kept any more, and one that comes to PATH is. What symbolic
links below PATH lead to in the mount, as in a snapshot of the cache of Hugging Face, gets rules of its own.
ckptfs evict still evicts such a file; it is hydrated again when the rules change, or by the next mount. In a store that
is not mounted, the next mount hydrates.`,
		Args: args.Some,
		RunE: func(cmd *cobra.Command, paths []string) error {
			out := &pinned{Moved: control.Moved{Skipped: []control.Skip{}}}
			for _, path := range paths {
				if err := pin(cmd.Context(), s, path, out); err != nil {
					return err
				}
			}
			err := s.Show(out, func(w io.Writer) {
				s.Left(out.Skipped)
				fmt.Fprintf(w, "pinned %s, ", named(out.Paths))
				if out.Mounted {
					fmt.Fprintf(w, "%s hydrated, %s copied\n", text.Plural(int64(out.Files), "file"), text.Bytes(out.Bytes))
				} else {
					fmt.Fprintln(w, "which the next mount hydrates")
				}
			})
			if err == nil && len(out.Skipped) > 0 {
				err = s.Partial()
			}
			return err
		},
	}
}

// named names a few paths, which links may have led to, and counts many.
func named(paths []string) string {
	const few = 3
	if len(paths) > few {
		return text.Plural(int64(len(paths)), "path")
	}
	some := make([]string, len(paths))
	for i, p := range paths {
		some[i] = text.Printable(cmp.Or(p, "all of the store"))
	}
	return strings.Join(some, ", ")
}

// ruleOf is the pattern of exactly a path.
func ruleOf(arg, path string) (string, error) {
	if path == "" {
		return "**", nil
	}
	pattern := policy.Exact(path)
	if pattern == "" {
		return "", control.Invalid("%s: its name has a line's end, or is not UTF-8: no rule can name it", arg)
	}
	return pattern, nil
}

func pin(ctx context.Context, s Shell, path string, out *pinned) error {
	return s.Change(ctx, path, func(c *control.Client, at *place.Place) error {
		if at.Path != "" {
			e, err := c.Entry(ctx, at.Path)
			if err != nil {
				return err
			}
			if e.View || at.Path == ".ckptfs" || strings.HasPrefix(at.Path, ".ckptfs/") {
				return control.Invalid("%s is made by the mount and has no local copy: pin the file that it is made of", path)
			}
		}
		pattern, err := ruleOf(path, at.Path)
		if err != nil {
			return err
		}
		more, err := targets(ctx, s, c, at)
		if err != nil {
			return err
		}
		st, err := c.Status(ctx)
		if err != nil {
			return err
		}
		out.Mounted = st.Mode != control.ModeUnmounted
		all := append([]target{{at.Path, pattern}}, more...)
		for some := range slices.Chunk(all, atOnce) {
			if _, err := c.ChangePolicy(ctx, changeOf(control.PolicyAdd, some)); err != nil {
				return err
			}
			for _, t := range some {
				out.Paths = append(out.Paths, t.path)
			}
		}
		if !out.Mounted {
			return nil
		}
		update, done := s.Progress("hydrating")
		defer done()
		for _, t := range all {
			m, err := c.Hydrate(ctx, t.path, update)
			if err != nil {
				return fmt.Errorf("%s is pinned, and not all of it is hydrated yet: %w", path, err)
			}
			out.Add(m)
		}
		return nil
	})
}

// target is a path that a rule is to hold, and the pattern of exactly that.
type target struct{ path, pattern string }

// atOnce is how many rules are changed by one request: each looks at all files.
const atOnce = 500

// changeOf is a change of the rules that hold some targets, of which there is one at least.
func changeOf(do string, some []target) control.PolicyChange {
	c := control.PolicyChange{Do: do, Pattern: some[0].pattern, Rule: string(policy.Hydrated)}
	for _, t := range some[1:] {
		c.More = append(c.More, t.pattern)
	}
	return c
}

// targets are what symbolic links below a place lead to.
func targets(ctx context.Context, s Shell, c *control.Client, at *place.Place) (all []target, err error) {
	more, err := linked.Outside(ctx, c, at)
	for _, p := range more {
		pattern, err := ruleOf(p, p)
		if err != nil {
			s.Say("%v", err)
			continue
		}
		all = append(all, target{p, pattern})
	}
	return all, err
}

func unpinCmd(s Shell) *cobra.Command {
	links := false
	cmd := &cobra.Command{
		Use:   "unpin PATH…",
		Short: "End what pin began",
		Long: `Removes from the store's policy what ckptfs pin PATH added. The local copies stay as a cache: they count against
--hot-size again, and the least recently used are evicted first. Rules of what symbolic links below PATH lead to stay,
and are named: other links may lead there, too. With --links they go as well.`,
		Args: args.Some,
		RunE: func(cmd *cobra.Command, paths []string) error {
			out := struct {
				Paths []string `json:"paths"`
			}{[]string{}}
			for _, path := range paths {
				gone, err := unpin(cmd.Context(), s, path, links)
				if err != nil {
					return err
				}
				out.Paths = append(out.Paths, gone...)
			}
			return s.Show(out, func(w io.Writer) {
				fmt.Fprintf(w, "unpinned %s\n", named(out.Paths))
			})
		},
	}
	cmd.Flags().BoolVar(&links, "links", false, "also unpin what symbolic links below PATH lead to")
	return cmd
}

// unpin takes a path, which may be gone; with links also what symbolic links below it lead to.
func unpin(ctx context.Context, s Shell, path string, links bool) (unpinned []string, err error) {
	there, rest, err := place.Existing(path)
	if err != nil {
		return nil, err
	}
	err = s.Change(ctx, there, func(c *control.Client, at *place.Place) error {
		at.Path = filepath.Join(at.Path, rest)
		pattern, err := ruleOf(path, at.Path)
		if err != nil {
			return err
		}
		more, err := targets(ctx, s, c, at)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		all := []target{{at.Path, pattern}}
		if links {
			all = append(all, more...)
		}
		before, err := c.Policy(ctx, false)
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(t target) bool { return !isPinned(before, t) })
		if len(all) == 0 {
			return control.NotFound("%s is not pinned%s", path, byRule(before, at.Path))
		}
		now := before
		for some := range slices.Chunk(all, atOnce) {
			if now, err = c.ChangePolicy(ctx, changeOf(control.PolicyRemove, some)); err != nil {
				return err
			}
			for _, t := range some {
				unpinned = append(unpinned, t.path)
			}
		}
		if by := holding(now, at.Path); by != nil {
			s.Say("%s is still held by the rule %s %s of line %d", path, by.Pattern, by.What(), by.Line)
		}
		if more = slices.DeleteFunc(more, func(t target) bool { return !isPinned(now, t) }); len(more) > 0 {
			left := make([]string, len(more))
			for i, t := range more {
				left[i] = t.path
			}
			s.Say("still pinned, since links below %s led there: %s (ckptfs unpin --links %s, if nothing else is to hold them)",
				path, named(left), text.Word(path))
		}
		return nil
	})
	return unpinned, err
}

// isPinned reports whether the rule is there that pin adds for a target.
func isPinned(p *control.Policy, t target) bool {
	return slices.ContainsFunc(p.Rules, func(r control.PolicyRule) bool {
		return r.Pattern == t.pattern && r.Rule == string(policy.Hydrated)
	})
}

// byRule says which rule holds a path that no pin does.
func byRule(p *control.Policy, path string) string {
	if by := holding(p, path); by != nil {
		return fmt.Sprintf(" by its path: the rule %s %s of line %d holds it", by.Pattern, by.What(), by.Line)
	}
	return ""
}

// holding is the rule that holds the files at a path; nil: none does.
func holding(p *control.Policy, path string) *policy.Rule {
	return rulesOf(p).Of(policy.Hydrated, path)
}

// rulesOf are the rules that a daemon tells of; nil: there are none that this program can read.
func rulesOf(p *control.Policy) *policy.Policy {
	rules, err := policy.Lines(len(p.Rules), func(i int) (int, string, string) {
		r := &p.Rules[i]
		return r.Line, r.Pattern, r.Rule
	})
	if err != nil {
		return nil
	}
	return rules
}
