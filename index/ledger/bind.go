package ledger

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// maxPrefixes bounds what may stand before all names.
const maxPrefixes = 16

// Bind is Tensors by the names that the step's tensors have. Those are ours; the parent's are theirs, nil
// when they are not known. A name in Tensors, or one tied to it, is one of ours, or all are behind a prefix
// that ends a part of a name ("model." in {"model": …, "optimizer": …}); behind each such, where there are
// several. The error says which name neither has, and wraps ErrInvalid.
func (d *Declared) Bind(ours, theirs map[string]bool) (map[string]string, error) {
	if len(d.Tensors) == 0 {
		return nil, nil
	}
	if theirs != nil {
		if old, ok := least(maps.Values(d.Tensors), func(old string) bool { return !theirs[old] }); ok {
			return nil, fmt.Errorf("tensors: the parent has no tensor %.200q: %w", old, ErrInvalid)
		}
	}
	bound := map[string]string{}
	if d.bind(ours, "", bound) {
		return bound, nil
	}
	for prefix := range d.prefixes(ours) {
		d.bind(ours, prefix, bound)
	}
	if len(bound) == 0 {
		missing, _ := least(maps.Keys(d.Tensors), func(name string) bool { return !d.has(ours, "", name) })
		return nil, fmt.Errorf("tensors: the step has no tensor %.200q: %w", missing, ErrInvalid)
	}
	return bound, nil
}

// least is the least of names that is one; a list may be as long as a file.
func least(names iter.Seq[string], is func(string) bool) (found string, ok bool) {
	for name := range names {
		if (!ok || name < found) && is(name) {
			found, ok = name, true
		}
	}
	return found, ok
}

// has reports whether a name, or one tied to it, is one of ours behind a prefix.
func (d *Declared) has(ours map[string]bool, prefix, name string) bool {
	return ours[prefix+name] ||
		slices.ContainsFunc(d.Tied[name], func(tied string) bool { return ours[prefix+tied] })
}

// bind adds what all names are behind a prefix; false when one is not there.
func (d *Declared) bind(ours map[string]bool, prefix string, bound map[string]string) bool {
	for name := range d.Tensors {
		if !d.has(ours, prefix, name) {
			return false
		}
	}
	for name, old := range d.Tensors {
		if ours[prefix+name] {
			bound[prefix+name] = old
		}
		for _, tied := range d.Tied[name] {
			if _, own := d.Tensors[tied]; !own && ours[prefix+tied] {
				bound[prefix+tied] = old
			}
		}
	}
	return true
}

// prefixes is what stands before the least of the names, or one tied to it, in ours; nothing when that is too
// much.
func (d *Declared) prefixes(ours map[string]bool) map[string]bool {
	name, _ := least(maps.Keys(d.Tensors), func(string) bool { return true })
	found := map[string]bool{}
	for _, name := range append([]string{name}, d.Tied[name]...) {
		for have := range ours {
			if p, ok := strings.CutSuffix(have, name); ok &&
				(strings.HasSuffix(p, ".") || strings.HasSuffix(p, "/")) {
				found[p] = true
			}
			if len(found) > maxPrefixes {
				return nil
			}
		}
	}
	return found
}
