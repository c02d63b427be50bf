package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"ckptfs/index/lineage"
)

// MaxDeclared bounds the bytes of a lineage.json.
const MaxDeclared = 16 << 20

// maxMerged bounds Declared.MergedFrom.
const maxMerged = 1024

// ErrInvalid says that a lineage.json, or a path in it, makes no sense. The error's text says why.
var ErrInvalid = errors.New("not valid")

// Declared is what a writer says of a step's parents.
type Declared struct {
	// Parent is a step or a file: relative to the mount's root, or, beginning with a dot, to the step; "":
	// not said.
	Parent     string
	MergedFrom []string // further parents, likewise
	Transfer   bool     // the parent is the answer to a query, whose weights the writer began with

	// Tensors has, of the step's tensors, those that began as a tensor of the parent's with another name, and
	// which; see Bind.
	Tensors map[string]string
	Tied    map[string][]string // further names of a name's tensor, of which a saver may write any
}

// How is how Parent is known.
func (d Declared) How() lineage.How {
	if d.Transfer {
		return lineage.Transfer
	}
	return lineage.Declared
}

// IsZero reports whether nothing is said.
func (d Declared) IsZero() bool { return d.Parent == "" && len(d.MergedFrom) == 0 }

// ParseDeclared reads a lineage.json:
//
//	{"parent": "runs/a/3", "how": "transfer", "merged_from": ["runs/b/7"],
//	 "tensors": {"new.weight": "old.weight"}, "tied": {"new.weight": ["head.weight"]}}
//
// "how" is "declared", and may be missing, or "transfer". A member that is null is missing; others are passed
// over, but none may be there twice.
func ParseDeclared(p []byte) (Declared, error) {
	if len(p) > MaxDeclared {
		return Declared{}, fmt.Errorf("%d bytes, of at most %d: %w", len(p), MaxDeclared, ErrInvalid)
	}
	if !utf8.Valid(p) {
		return Declared{}, fmt.Errorf("not UTF-8: %w", ErrInvalid)
	}
	all, err := members(p)
	if err != nil {
		return Declared{}, err
	}
	var d Declared
	how := ""
	for key, into := range map[string]any{"parent": &d.Parent, "how": &how, "merged_from": &d.MergedFrom,
		"tensors": &d.Tensors, "tied": &d.Tied} {
		value := all[key]
		if len(value) == 0 || string(value) == "null" {
			continue
		}
		if err := json.Unmarshal(value, into); err != nil {
			return Declared{}, fmt.Errorf("%s is %.40s: a parent is a text, merged_from a list of texts, tensors has texts, and tied lists of texts: %w", key, value, ErrInvalid)
		}
		if key == "how" && how != "transfer" && how != "declared" {
			return Declared{}, fmt.Errorf("how is %.40q, neither declared nor transfer: %w", how, ErrInvalid)
		}
	}
	d.Transfer = how == "transfer"
	for key, n := range map[string]int{"tensors": len(d.Tensors), "tied": len(d.Tied)} {
		if n > 0 && countMembers(all[key]) != n {
			return Declared{}, fmt.Errorf("%s: a name is there twice: %w", key, ErrInvalid)
		}
	}
	for key := range all {
		for _, known := range []string{"parent", "how", "merged_from", "tensors", "tied"} {
			if key != known && strings.EqualFold(key, known) {
				return Declared{}, fmt.Errorf("member %q: %q is written so: %w", key, known, ErrInvalid)
			}
		}
	}
	for name, old := range d.Tensors {
		if name == "" || old == "" {
			return Declared{}, fmt.Errorf("tensors: one without name: %w", ErrInvalid)
		}
	}
	for name, tied := range d.Tied {
		if slices.Contains(tied, "") {
			return Declared{}, fmt.Errorf("tied: one of %.40q without name: %w", name, ErrInvalid)
		}
	}
	if len(d.MergedFrom) > maxMerged {
		return Declared{}, fmt.Errorf("merged from %d: at most %d: %w", len(d.MergedFrom), maxMerged,
			ErrInvalid)
	}
	if slices.Contains(d.MergedFrom, "") {
		return Declared{}, fmt.Errorf("merged_from: a path without name: %w", ErrInvalid)
	}
	for _, s := range append([]string{d.Parent}, d.MergedFrom...) {
		if err := CheckPath(s); err != nil {
			return Declared{}, err
		}
	}
	return d, nil
}

// members is those of an object. No two may have one name.
func members(p []byte) (all map[string]json.RawMessage, err error) {
	err = json.Unmarshal(p, &all)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) || err == nil && all == nil {
		err = errors.New("not an object")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrInvalid)
	}
	if countMembers(p) != len(all) {
		return nil, fmt.Errorf("a member is there twice: %w", ErrInvalid)
	}
	return all, nil
}

// countMembers counts those of an object, which is valid.
func countMembers(p []byte) (n int) {
	depth, text := 0, false
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ':' && depth == 1:
			n++
		}
	}
	return n
}

// CheckPath returns an error for what no system takes for a path.
func CheckPath(s string) error {
	if len(s) > 4096 || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return fmt.Errorf("%.40q is no path: %w", s, ErrInvalid)
	}
	return nil
}

// Resolve is the path of a parent relative to the mount's root, as a step says it, where root is where the
// mount is ("": nowhere).
func Resolve(said, step, root string) (string, error) {
	p := said
	switch {
	case p == "." || p == ".." || strings.HasPrefix(p, "./") || strings.HasPrefix(p, "../"):
		p = path.Join("/", step, p)
	case strings.HasPrefix(p, "/"):
		rest, ok := strings.CutPrefix(path.Clean(p), strings.TrimSuffix(root, "/")+"/")
		if root == "" || !ok {
			return "", fmt.Errorf("parent %q lies outside of the mount: %w", said, ErrInvalid)
		}
		p = "/" + rest
	default:
		p = path.Join("/", p)
	}
	p = path.Clean(p)[1:]
	if !strings.HasPrefix(p, "runs/") || p == step {
		return "", fmt.Errorf("parent %q is no other step below runs/: %w", said, ErrInvalid)
	}
	return p, nil
}
