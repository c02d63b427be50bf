package policy

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// pattern is one that was read.
type pattern struct {
	parts  []string // between slashes; "**" stands for any number of folders
	folder bool     // it matches no file
	exact  string   // the path that it is, where nothing in it stands for others; else ""
}

// parsePattern reads a pattern, with or without its "!".
func parsePattern(s string) (*pattern, error) {
	if len(s) > maxPattern {
		return nil, fmt.Errorf("the pattern has %d bytes, of at most %d", len(s), maxPattern)
	}
	rest := strings.TrimPrefix(s, "!")
	p := &pattern{}
	if cut, ok := strings.CutSuffix(rest, "/"); ok {
		p.folder, rest = true, cut
	}
	anchored := strings.Contains(rest, "/")
	rest = strings.TrimPrefix(rest, "/")
	if rest == "" {
		return nil, fmt.Errorf("the pattern %s is of no name: ** is all files", word(s))
	}
	if !anchored && rest != "**" {
		p.parts = append(p.parts, "**")
	}
	literal := anchored
	for part := range strings.SplitSeq(rest, "/") {
		switch {
		case part == "":
			return nil, fmt.Errorf("the pattern %s has two slashes one behind the other", word(s))
		case part == "." || part == "..":
			return nil, fmt.Errorf("the pattern %s has %q: paths go down from the mount's root", word(s), part)
		case part == "**":
			literal = false
			if n := len(p.parts); n > 0 && p.parts[n-1] == part {
				continue // it says no more
			}
			p.parts = append(p.parts, part)
			continue
		}
		part = classes(part)
		if _, err := path.Match(part, ""); err != nil {
			return nil, fmt.Errorf("the pattern %s has a [ without its ], or a \\ at its end", word(s))
		}
		literal = literal && !strings.ContainsAny(part, `*?[`)
		p.parts = append(p.parts, part)
	}
	if literal && !p.folder {
		p.exact = unescape(strings.Join(p.parts, "/"))
	}
	return p, nil
}

// classes writes gitignore's [!a] as package path has it.
func classes(part string) string {
	b := []byte(part)
	for i := 0; i+1 < len(b); i++ {
		switch {
		case b[i] == '\\':
			i++
		case b[i] == '[' && b[i+1] == '!':
			b[i+1] = '^'
		}
	}
	return string(b)
}

// unescape is what a pattern matches in which nothing stands for others.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// special are the characters that mean something in a pattern or in a line.
const special = "\\*?[#! \t"

// Exact is the pattern of exactly the file or the folder at a path, and all below that. It is "" for a path
// that none can be written for: it has a line's end, or is the root.
func Exact(p string) string {
	if p == "" || strings.ContainsAny(p, "\n\r\x00") || !utf8.ValidString(p) {
		return ""
	}
	var b strings.Builder
	b.WriteByte('/')
	for i := 0; i < len(p); i++ {
		if strings.IndexByte(special, p[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(p[i])
	}
	return b.String()
}

// covers reports whether a pattern matches a path, or a folder above it.
func (p *pattern) covers(names []string) bool {
	n := len(names)
	if p.folder {
		n--
	}
	for ; n > 0; n-- {
		if matches(p.parts, names[:n]) {
			return true
		}
	}
	return false
}

// matches reports whether parts of a pattern match all names of a path. It goes back no further than to the
// last "**": what comes before that has its match already.
func matches(parts, names []string) bool {
	i, j := 0, 0
	star, at := -1, 0 // the last "**", and where what is behind it was tried
	for j < len(names) {
		switch {
		case i < len(parts) && parts[i] == "**":
			star, at = i, j
			if i++; i == len(parts) {
				return true // all that is below, of which there is one at least
			}
		case i < len(parts) && matchName(parts[i], names[j]):
			i, j = i+1, j+1
		case star >= 0:
			at++
			i, j = star+1, at
		default:
			return false
		}
	}
	return i == len(parts)
}

func matchName(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// matcher finds the last of some rules that covers a path.
type matcher struct {
	exact map[string]int // by paths: the last rule of exactly that
	globs []glob         // in order
}

// glob is a pattern of a rule.
type glob struct {
	*pattern
	rule int
}

// add adds the pattern of a rule behind all others.
func (m *matcher) add(s string, rule int) error {
	p, err := parsePattern(s)
	if err != nil {
		return err
	}
	if p.exact != "" {
		m.exact[p.exact] = rule
	} else {
		m.globs = append(m.globs, glob{p, rule})
	}
	return nil
}

// last is the last rule that covers a path; -1: none does.
func (m *matcher) last(p string) int {
	found := -1
	for at := p; at != "" && len(m.exact) > 0; {
		if rule, ok := m.exact[at]; ok && rule > found {
			found = rule
		}
		i := strings.LastIndexByte(at, '/')
		at = at[:max(i, 0)]
	}
	if len(m.globs) == 0 || m.globs[len(m.globs)-1].rule < found {
		return found
	}
	names := strings.Split(p, "/")
	for i := len(m.globs) - 1; i >= 0 && m.globs[i].rule > found; i-- {
		if m.globs[i].covers(names) {
			return m.globs[i].rule
		}
	}
	return found
}
