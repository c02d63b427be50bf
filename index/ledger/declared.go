package ledger

import (
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

	// Tensors has, of the step's tensors, those that began as a tensor of the parent's with another name, and which.
	Tensors map[string]string
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
//	{"parent": "runs/a/3", "how": "transfer", "tensors": {"new.weight": "old.weight"}, "merged_from": ["runs/b/7"]}
//
// "how" is "declared" or may be missing otherwise. Other members are passed over.
func ParseDeclared(p []byte) (Declared, error) {
	if len(p) > MaxDeclared {
		return Declared{}, fmt.Errorf("%d bytes, of at most %d: %w", len(p), MaxDeclared, ErrInvalid)
	}
	var doc struct {
		Parent     *string  `json:"parent"`
		How        string   `json:"how"`
		MergedFrom []string `json:"merged_from"`
		Tensors    map[string]string
	}
	if err := json.Unmarshal(p, &doc); err != nil {
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			err = fmt.Errorf("%s %q: a parent is a text, merged_from a list of texts, and tensors has texts", wrong.Value, wrong.Field)
		}
		return Declared{}, fmt.Errorf("%v: %w", err, ErrInvalid)
	}
	d := Declared{MergedFrom: doc.MergedFrom, Transfer: doc.How == "transfer", Tensors: doc.Tensors}
	if doc.Parent != nil {
		d.Parent = *doc.Parent
	}
	if len(d.MergedFrom) > maxMerged {
		return Declared{}, fmt.Errorf("merged from %d: at most %d: %w", len(d.MergedFrom), maxMerged, ErrInvalid)
	}
	for _, s := range append([]string{d.Parent}, d.MergedFrom...) {
		if err := CheckPath(s); err != nil {
			return Declared{}, err
		}
	}
	return d, nil
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
