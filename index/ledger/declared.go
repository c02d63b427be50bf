package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
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
	Parent     string   // a step or a file: relative to the mount's root, or, beginning with a dot, to the step; "": not said
	MergedFrom []string // further parents, likewise
	Transfer   bool     // the parent is the answer to a query, whose weights the writer began with

	// Tensors has, of the step's tensors, those that began as a tensor of the parent's with another name, and which; see Bind.
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
//	{"parent": "runs/a/3", "how": "transfer", "tensors": {"new.weight": "old.weight"}, "tied": {"new.weight": ["head.weight"]}, "merged_from": ["runs/b/7"]}
//
// "how" is "declared", and may be missing, or "transfer". A member that is null is missing; others are passed over, but none may be there twice.
func ParseDeclared(p []byte) (Declared, error) {
	if len(p) > MaxDeclared {
		return Declared{}, fmt.Errorf("%d bytes, of at most %d: %w", len(p), MaxDeclared, ErrInvalid)
	}
	if !utf8.Valid(p) {
		return Declared{}, fmt.Errorf("not UTF-8: %w", ErrInvalid)
	}
	var d Declared
	err := members(p, func(key string, value json.RawMessage) (err error) {
		if string(value) == "null" {
			return nil
		}
		switch key {
		case "parent":
			d.Parent, err = text(key, value)
		case "how":
			var how string
			how, err = text(key, value)
			d.Transfer = how == "transfer"
			if err == nil && how != "transfer" && how != "declared" {
				err = fmt.Errorf("how is %q, neither declared nor transfer", how)
			}
		case "merged_from":
			d.MergedFrom, err = texts(key, value)
			if len(d.MergedFrom) > maxMerged {
				err = fmt.Errorf("merged from %d: at most %d", len(d.MergedFrom), maxMerged)
			}
		case "tensors":
			d.Tensors = map[string]string{}
			err = members(value, func(name string, value json.RawMessage) (err error) {
				d.Tensors[name], err = text("tensor "+name, value)
				if err == nil && (name == "" || d.Tensors[name] == "") {
					err = errors.New("a tensor without name")
				}
				return err
			})
		case "tied":
			d.Tied = map[string][]string{}
			err = members(value, func(name string, value json.RawMessage) (err error) {
				d.Tied[name], err = texts("tied names of "+name, value)
				return err
			})
		default:
			for _, known := range []string{"parent", "how", "merged_from", "tensors", "tied"} {
				if strings.EqualFold(key, known) {
					err = fmt.Errorf("member %q: %q is written so", key, known)
				}
			}
		}
		return err
	})
	if err != nil {
		return Declared{}, fmt.Errorf("%w: %w", err, ErrInvalid)
	}
	for _, s := range append([]string{d.Parent}, d.MergedFrom...) {
		if err := CheckPath(s); err != nil {
			return Declared{}, err
		}
	}
	return d, nil
}

// members calls f with those of an object, as they come. No two may have one name.
func members(p []byte, f func(key string, value json.RawMessage) error) error {
	if !json.Valid(p) {
		var v json.RawMessage
		return json.Unmarshal(p, &v)
	}
	dec := json.NewDecoder(bytes.NewReader(p))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("%.40s is not an object", p)
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		key, _ := t.(string)
		if seen[key] {
			return fmt.Errorf("member %q twice", key)
		}
		seen[key] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		if err := f(key, value); err != nil {
			return err
		}
	}
	return nil
}

func text(what string, value json.RawMessage) (s string, err error) {
	if value[0] != '"' {
		return "", fmt.Errorf("%s is %.40s, not a text", what, value)
	}
	return s, json.Unmarshal(value, &s)
}

func texts(what string, value json.RawMessage) (out []string, err error) {
	var all []json.RawMessage
	if value[0] != '[' {
		return nil, fmt.Errorf("%s is %.40s, not a list of texts", what, value)
	}
	if err := json.Unmarshal(value, &all); err != nil {
		return nil, err
	}
	for _, one := range all {
		s, err := text("one of "+what, one)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// CheckPath returns an error for what no system takes for a path.
func CheckPath(s string) error {
	if len(s) > 4096 || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return fmt.Errorf("%.40q is no path: %w", s, ErrInvalid)
	}
	return nil
}

// Resolve is the path of a parent relative to the mount's root, as a step says it, where root is where the mount is ("": nowhere).
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
