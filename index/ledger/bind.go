package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxPrefixes bounds what is tried to stand before all names.
const maxPrefixes = 16

// Bind is Tensors by the names that the step's tensors have. Those are ours; the parent's are theirs, nil when they are not known. A name in Tensors, or one tied to it, is
// one of ours, or all are behind a prefix that ends a part of a name ("model." in {"model": …, "optimizer": …}); behind each such, where there are several. The
// error says which name neither has, and wraps ErrInvalid.
func (d *Declared) Bind(ours, theirs map[string]bool) (map[string]string, error) {
	if len(d.Tensors) == 0 {
		return nil, nil
	}
	names := slices.Sorted(maps.Keys(d.Tensors))
	if theirs != nil {
		for _, name := range names {
			if old := d.Tensors[name]; !theirs[old] {
				return nil, fmt.Errorf("tensors: the parent has no tensor %q: %w", old, ErrInvalid)
			}
		}
	}
	bound := map[string]string{}
	missing := d.bind(ours, names, "", bound)
	if missing == "" {
		return bound, nil
	}
	for _, prefix := range d.prefixes(ours, names[0]) {
		d.bind(ours, names, prefix, bound)
	}
	if len(bound) == 0 {
		return nil, fmt.Errorf("tensors: the step has no tensor %q: %w", missing, ErrInvalid)
	}
	return bound, nil
}

// bind adds what all names are behind a prefix, or returns one that is not there.
func (d *Declared) bind(ours map[string]bool, names []string, prefix string, bound map[string]string) (missing string) {
	found := map[string]string{}
	for _, name := range names {
		there := ours[prefix+name]
		if there {
			found[prefix+name] = d.Tensors[name]
		}
		for _, tied := range d.Tied[name] {
			if _, own := d.Tensors[tied]; ours[prefix+tied] {
				there = true
				if !own {
					found[prefix+tied] = d.Tensors[name]
				}
			}
		}
		if !there {
			return name
		}
	}
	maps.Copy(bound, found)
	return ""
}

// prefixes lists what stands before a name, or one tied to it, in ours.
func (d *Declared) prefixes(ours map[string]bool, name string) []string {
	found := map[string]bool{}
	for _, name := range append([]string{name}, d.Tied[name]...) {
		for have := range ours {
			if p, ok := strings.CutSuffix(have, name); ok && (strings.HasSuffix(p, ".") || strings.HasSuffix(p, "/")) {
				found[p] = true
			}
		}
	}
	all := slices.Sorted(maps.Keys(found))
	return all[:min(len(all), maxPrefixes)]
}
