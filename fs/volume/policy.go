package volume

import (
	"context"
	"log/slog"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/policy"
	"ckptfs/fs/residency"
	"ckptfs/fs/tree"
)

// openRules connects the rules of the store with the parts that act by them.
func openRules(v *Volume) {
	if problem := v.rules.Problem(); problem != "" {
		v.report(slog.LevelError, "the policy cannot be read: no rule holds until it is mended and `ckptfs policy load` has read it", "reason", problem)
	}
	v.hold = residency.NewHold(v.hot, v.hydrator, residency.HoldOptions{
		Walk: v.Requests().walkFiles, Ready: v.surveyed,
		Room: func(bytes int64) bool {
			size, free, err := v.reserve.Space()
			least := size / 25 // twice of what Reserve.Short asks for
			return err == nil && free-bytes >= least+v.sharing.keepsFree()
		},
	})
	v.rules.Changed = func(before, now *policy.Policy) {
		if before.Has(policy.Hydrated) || now.Has(policy.Hydrated) {
			v.hold.Changed()
		}
	}
	if v.rules.Now().Has(policy.Hydrated) {
		v.hold.Look("")
	}
}

// ruled reports whether a rule of a kind holds for a file.
func ruled(v *Volume, k policy.Kind, f *content.File) bool {
	p := v.rules.Now()
	return p.Has(k) && p.Is(k, f.Path())
}

// judge has what was moved looked at again by the rules of its new path, and what it changed places with.
func judge(v *Volume, oldDir *names.Node, oldName string, newDir *names.Node, newName string) {
	if !v.rules.Now().Has(policy.Hydrated) {
		return
	}
	v.hold.Look(path.Join(newDir.Path(), newName))
	v.hold.Look(path.Join(oldDir.Path(), oldName))
}

// policies is the control.Policies of a volume.
type policies struct{ v *Volume }

// Policy lists the rules, and counts what they cover.
func (p policies) Policy(ctx context.Context, count bool) (*control.Policy, error) {
	now := p.v.rules.Now()
	out := &control.Policy{File: p.v.folder.Join(tree.PolicyFile), Problem: p.v.rules.Problem(),
		Rules: []control.PolicyRule{}}
	for _, r := range now.Rules() {
		out.Rules = append(out.Rules, control.PolicyRule{Line: r.Line, Pattern: r.Pattern, Rule: r.What()})
	}
	if !count || len(out.Rules) == 0 {
		return out, nil
	}
	for i := range out.Rules {
		out.Rules[i].Covered = &control.Covered{}
	}
	seen := map[uint64]bool{} // of hard links
	err := p.v.names.Walk(ctx, func(at string, n *names.Node) error {
		var of []*control.Covered
		for _, k := range policy.Kinds {
			if i := now.Decides(k, at); i >= 0 {
				of = append(of, out.Rules[i].Covered)
			}
		}
		var st unix.Stat_t
		if len(of) == 0 || n.Stat(&st) != nil {
			return nil
		}
		f := n.File()
		f.Lock()
		resident := f.LoadLocked() == nil && f.StateLocked().Resident()
		f.Unlock()
		if st.Nlink > 1 && seen[st.Ino] {
			return nil
		} else if st.Nlink > 1 {
			seen[st.Ino] = true
		}
		for _, c := range of {
			c.Files++
			c.Bytes += st.Size
			if resident {
				c.ResidentFiles++
				c.ResidentBytes += st.Size
			}
		}
		return nil
	})
	return out, err
}

// ChangePolicy adds or removes rules, or reads the file again.
func (p policies) ChangePolicy(ctx context.Context, c control.PolicyChange) (*control.Policy, error) {
	var err error
	removed := 0
	switch c.Do {
	case control.PolicyAdd:
		var rules []*policy.Rule
		for _, pattern := range append([]string{c.Pattern}, c.More...) {
			r, err := policy.ParseRule(pattern, strings.Fields(c.Rule)...)
			if err != nil {
				return nil, control.Invalid("%v", err)
			}
			rules = append(rules, r)
		}
		err = p.v.rules.Add(rules...)
	case control.PolicyRemove:
		removed, err = p.v.rules.Remove(policy.Kind(c.Rule), append(c.More, c.Pattern)...)
		if err == nil && removed == 0 {
			err = control.NotFound("there is no such rule of the pattern %s: `ckptfs policy` lists them", c.Pattern)
		}
	default:
		err = p.v.rules.Load()
	}
	if err != nil {
		return nil, err
	}
	out, err := p.Policy(ctx, false)
	if err == nil {
		out.Removed = removed
	}
	return out, err
}
