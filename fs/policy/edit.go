package policy

import (
	"fmt"
	"strings"
)

// Add returns a policy's text with more rules, behind all others: they decide where others cover the same.
// Rules of the same patterns and kinds are taken out. Comments stay. An empty text is that of a new policy.
func Add(text []byte, rules ...*Rule) ([]byte, error) {
	var added strings.Builder
	of := map[Kind][]string{}
	for _, r := range rules {
		if strings.ContainsAny(r.Pattern, "\n\r\x00") {
			return nil, &Error{Reason: "the pattern has a line's end"}
		}
		if words := fields(r.Pattern + " " + r.What()); len(words) == 0 || words[0] != r.Pattern {
			return nil, &Error{Reason: fmt.Sprintf("the pattern %s has a blank or begins with #: write \\ before it",
				word(r.Pattern))}
		}
		of[r.Kind] = append(of[r.Kind], r.Pattern)
		added.WriteString(r.Pattern + "\t" + r.What() + "\n")
	}
	for kind, patterns := range of {
		var err error
		if text, _, err = Remove(text, kind, patterns...); err != nil {
			return nil, err
		}
	}
	if n := len(text); n > 0 && text[n-1] != '\n' {
		text = append(text, '\n')
	}
	text = append(text, added.String()...)
	_, err := Parse(text)
	return text, err
}

// Remove returns a policy's text without the rules of some patterns and a kind, of every kind if that is "",
// and how many these were.
func Remove(text []byte, kind Kind, patterns ...string) (left []byte, removed int, err error) {
	if len(text) == 0 {
		text = []byte(Head + "\n")
	}
	p, err := Parse(text)
	if err != nil {
		return nil, 0, err
	}
	is := map[string]bool{}
	for _, pattern := range patterns {
		is[pattern] = true
	}
	goes := map[int]bool{} // lines, from 1
	for i := range p.rules {
		r := &p.rules[i]
		if is[r.Pattern] && (kind == "" || r.Kind == kind) {
			goes[r.Line] = true
		}
	}
	var out strings.Builder
	for i, line := range strings.SplitAfter(string(text), "\n") {
		if !goes[i+1] {
			out.WriteString(line)
		}
	}
	return []byte(out.String()), len(goes), nil
}
