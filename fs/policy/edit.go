package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Add returns a policy's text with one rule more, behind all others: it decides where others cover the same.
// A rule of the same pattern and kind is taken out. Comments stay. An empty text is that of a new policy.
func Add(text []byte, r *Rule) ([]byte, error) {
	if strings.ContainsAny(r.Pattern, "\n\r\x00") {
		return nil, &Error{Reason: "the pattern has a line's end"}
	}
	if words := fields(r.Pattern + " " + r.What()); len(words) == 0 || words[0] != r.Pattern {
		return nil, &Error{Reason: fmt.Sprintf("the pattern %s has a blank or begins with #: write \\ before it",
			word(r.Pattern))}
	}
	text, _, err := Remove(text, r.Pattern, r.Kind)
	if err != nil {
		return nil, err
	}
	if n := len(text); n > 0 && text[n-1] != '\n' {
		text = append(text, '\n')
	}
	text = append(text, r.Pattern+"\t"+r.What()+"\n"...)
	_, err = Parse(text)
	return text, err
}

// Remove returns a policy's text without the rules of a pattern and a kind, of every kind if that is "", and
// how many these were.
func Remove(text []byte, pattern string, kind Kind) (left []byte, removed int, err error) {
	if len(text) == 0 {
		text = []byte(Head + "\n")
	}
	p, err := Parse(text)
	if err != nil {
		return nil, 0, err
	}
	all := strings.SplitAfter(string(text), "\n")
	for i := len(p.rules) - 1; i >= 0; i-- {
		r := &p.rules[i]
		if r.Pattern == pattern && (kind == "" || r.Kind == kind) {
			all = slices.Delete(all, r.Line-1, r.Line)
			removed++
		}
	}
	return []byte(strings.Join(all, "")), removed, nil
}
