// Package policy is the rules of a store: what is to become of the files at some paths.
//
// # The file
//
// STORE/policy is text of lines. The first one is the head. Each other one is empty, a comment, or a rule: a
// pattern, blanks, a kind, and what that takes.
//
//	ckptfs policy 1
//	# weights that servers map
//	*.gguf          plain                        # never packed
//	runs/prod/**    hydrated                     # always has its local copy, whatever --hot-size says
//	serving/**      alone                        # no deltas, no recipes
//	serving/**      read-once                    # its pages leave memory when the last program closes it
//	runs/**         drop-optimizer keep-last=2 older-than=30d
//
// A # that begins a line, or stands behind a blank, begins a comment. A \ before a blank, a # or another
// character that means something has it mean itself.
//
// # Patterns
//
// They are those of gitignore, over paths below the mount's root:
//
//   - ?  [a-z]     any number of characters, one, one of some; never a slash
//     **              any number of folders, if it is all that stands between slashes
//     name            without a slash but at its end: what has that name, however deep
//     a/b  /name      with one: the path from the root
//     name/           a folder alone
//     !name           what a rule before says of these files does not hold
//
// A pattern that matches a folder covers all below it. Of the rules of one kind that cover a file the last
// one decides, also one with a "!". Unlike git's, such a rule also holds below a folder that was covered.
//
// A Policy does not change: it may be used by several goroutines at once. A nil one has no rules.
package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"ckptfs/index/runs"
)

// Head is the first line of the file.
const Head = "ckptfs policy 1"

// Bounds of what is read. No one line makes a lookup slow.
const (
	MaxBytes   = 4 << 20 // of the file
	maxPattern = 4096    // bytes of a pattern
	maxRules   = 1 << 16
)

// Kind is what a rule is about.
type Kind string

// The kinds.
const (
	Plain    Kind = "plain"          // the file is never packed
	Hydrated Kind = "hydrated"       // it always has its local copy
	Alone    Kind = "alone"          // it is stored without deltas and recipes
	ReadOnce Kind = "read-once"      // its pages leave memory when the last program closes it
	Drop     Kind = "drop-optimizer" // a command removes optimizer state of old steps
)

// Kinds are all kinds, in the order of the documents.
var Kinds = []Kind{Plain, Hydrated, Alone, ReadOnce, Drop}

// Rule is one line.
type Rule struct {
	Line    int    // from 1
	Pattern string // as it is written, with its !
	Kind    Kind
	// of Drop: how many of the last whole steps of a run keep it, 2 at least, and how old a step is at least
	// that loses it. What a step has to have is told from the ones before it (package steps).
	KeepLast  int
	OlderThan time.Duration
}

// Not reports whether the rule ends what a rule before says.
func (r *Rule) Not() bool { return strings.HasPrefix(r.Pattern, "!") }

// What is the rule without its pattern.
func (r *Rule) What() string {
	s := string(r.Kind)
	if r.KeepLast > 0 {
		s += " keep-last=" + strconv.Itoa(r.KeepLast)
	}
	if r.OlderThan > 0 {
		s += " older-than=" + runs.FormatAge(r.OlderThan)
	}
	return s
}

// Error is what is wrong with a policy.
type Error struct {
	Line   int // from 1; 0: it is no line's
	Reason string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Reason
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
}

// Policy is rules that can be asked about paths.
type Policy struct {
	rules []Rule
	of    map[Kind]*matcher
}

// Parse reads a policy. The error is an *Error.
func Parse(text []byte) (*Policy, error) {
	if len(text) > MaxBytes {
		return nil, &Error{Reason: fmt.Sprintf("it has %d bytes, of at most %d", len(text), MaxBytes)}
	}
	p := &Policy{of: map[Kind]*matcher{}}
	for i, line := range lines(text) {
		if i == 0 {
			if err := checkHead(line); err != nil {
				return nil, err
			}
			continue
		}
		r, err := parseLine(line)
		if err == nil && len(p.rules) == maxRules {
			err = fmt.Errorf("there are more than %d rules", maxRules)
		}
		if err != nil {
			return nil, &Error{i + 1, err.Error()}
		}
		if r == nil {
			continue
		}
		r.Line = i + 1
		m := p.of[r.Kind]
		if m == nil {
			m = &matcher{exact: map[string]int{}}
			p.of[r.Kind] = m
		}
		if err := m.add(r.Pattern, len(p.rules)); err != nil {
			return nil, &Error{i + 1, err.Error()}
		}
		p.rules = append(p.rules, *r)
	}
	return p, nil
}

// lines are those of a text, without their ends.
func lines(text []byte) []string {
	s := strings.TrimSuffix(string(text), "\n")
	all := strings.Split(s, "\n")
	for i := range all {
		all[i] = strings.TrimSuffix(all[i], "\r")
	}
	return all
}

func checkHead(line string) error {
	line = strings.TrimSpace(line)
	if line == Head {
		return nil
	}
	if rest, ok := strings.CutPrefix(line, "ckptfs policy "); ok {
		return &Error{1, fmt.Sprintf("it is a policy of version %s, and this program reads version 1", word(rest))}
	}
	return &Error{1, fmt.Sprintf("it is %s, and the first line of a policy is %q", word(line), Head)}
}

// word is a text of a message, cut short.
func word(s string) string {
	const most = 80
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}

// parseLine reads one line; nil: it is no rule.
func parseLine(line string) (*Rule, error) {
	if strings.ContainsAny(line, "\x00\r") {
		return nil, fmt.Errorf("it has a zero byte, or a carriage return that does not end it")
	}
	words := fields(line)
	if len(words) == 0 {
		return nil, nil
	}
	if len(words) == 1 {
		return nil, fmt.Errorf("the pattern %s has no rule behind it: %s (a blank in a pattern is written \\ )",
			word(words[0]), kindsText())
	}
	return ParseRule(words[0], words[1:]...)
}

// fields are the words of a line up to a comment. A blank behind a backslash does not end one.
func fields(line string) (words []string) {
	start, escaped := -1, false
	for i := 0; i < len(line); i++ {
		c := line[i]
		blank := (c == ' ' || c == '\t') && !escaped
		if c == '#' && start < 0 {
			return words
		}
		if blank && start >= 0 {
			words = append(words, line[start:i])
			start = -1
		} else if !blank && start < 0 {
			start = i
		}
		escaped = c == '\\' && !escaped
	}
	if start >= 0 {
		words = append(words, line[start:])
	}
	return words
}

func kindsText() string {
	names := make([]string, len(Kinds))
	for i, k := range Kinds {
		names[i] = string(k)
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// ParseRule reads a rule of a pattern and the words behind it.
func ParseRule(pattern string, words ...string) (*Rule, error) {
	if len(words) == 0 {
		return nil, fmt.Errorf("there is no rule: it is %s", kindsText())
	}
	r := &Rule{Pattern: pattern, Kind: Kind(words[0])}
	known := false
	for _, k := range Kinds {
		known = known || k == r.Kind
	}
	if !known {
		return nil, fmt.Errorf("there is no rule %s: it is %s", word(words[0]), kindsText())
	}
	if _, err := parsePattern(pattern); err != nil {
		return nil, err
	}
	for _, w := range words[1:] {
		if err := r.option(w); err != nil {
			return nil, err
		}
	}
	if r.Kind == Drop && r.KeepLast == 0 && !r.Not() {
		return nil, fmt.Errorf("%s says no keep-last=N, the number of steps that keep their optimizer's state", Drop)
	}
	return r, nil
}

// option reads NAME=VALUE.
func (r *Rule) option(w string) error {
	name, value, ok := strings.Cut(w, "=")
	switch {
	case r.Kind != Drop || r.Not():
		return fmt.Errorf("%s takes nothing behind it, not %s", r.Kind, word(w))
	case name == "keep-last" && r.KeepLast > 0 || name == "older-than" && r.OlderThan > 0:
		return fmt.Errorf("%s is there twice", name)
	case ok && name == "keep-last":
		n, err := strconv.Atoi(value)
		if err != nil || n < 2 || n > 1e9 || strconv.Itoa(n) != value {
			return fmt.Errorf("keep-last is a number of steps, 2 or more, not %s", word(value))
		}
		r.KeepLast = n
	case ok && name == "older-than":
		d, err := runs.ParseAge(value)
		if err != nil || d == 0 {
			return fmt.Errorf("older-than is an age such as 30d or 1w2d, not %s", word(value))
		}
		r.OlderThan = d
	default:
		return fmt.Errorf("%s takes keep-last=N and older-than=30d, not %s", Drop, word(w))
	}
	return nil
}

// Lines is a policy of n rules, each of which stands in a line.
func Lines(n int, rule func(i int) (line int, pattern, what string)) (*Policy, error) {
	lines := []string{Head}
	for i := range n {
		line, pattern, what := rule(i)
		if line > MaxBytes {
			return nil, &Error{line, "it is no line of a policy"}
		}
		for len(lines) < line-1 {
			lines = append(lines, "")
		}
		lines = append(lines, pattern+"\t"+what)
	}
	return Parse([]byte(strings.Join(lines, "\n") + "\n"))
}

// Rules are all rules, in the order of the file.
func (p *Policy) Rules() []Rule {
	if p == nil {
		return nil
	}
	return p.rules
}

// Has reports whether there is a rule of a kind.
func (p *Policy) Has(k Kind) bool { return p != nil && p.of[k] != nil }

// Of is the rule of a kind that decides about the file at a path below the mount's root, nil if none does, or
// if it says not.
func (p *Policy) Of(k Kind, path string) *Rule {
	if i := p.Decides(k, path); i >= 0 && !p.rules[i].Not() {
		return &p.rules[i]
	}
	return nil
}

// Is reports whether a rule of a kind holds for the file at a path.
func (p *Policy) Is(k Kind, path string) bool { return p.Of(k, path) != nil }

// Decides is which of Rules is the last one of a kind that covers a path, also one that says not; -1: none.
func (p *Policy) Decides(k Kind, path string) int {
	if !p.Has(k) {
		return -1
	}
	return p.of[k].last(path)
}
