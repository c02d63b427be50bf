package control

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
)

// fakePolicies has one rule, and notes what is asked of it.
type fakePolicies struct{ asked []string }

func (f *fakePolicies) Policy(_ context.Context, count bool) (*Policy, error) {
	r := PolicyRule{Line: 2, Pattern: "a b", Rule: "plain"}
	if count {
		r.Covered = &Covered{Files: 3, Bytes: 4}
	}
	return &Policy{File: "/s/policy", Rules: []PolicyRule{r}}, nil
}

func (f *fakePolicies) ChangePolicy(ctx context.Context, c PolicyChange) (*Policy, error) {
	f.asked = append(f.asked, strings.Join(append([]string{c.Do, c.Pattern, c.Rule}, c.More...), "|"))
	if c.Do == PolicyRemove {
		return nil, NotFound("no rule")
	}
	return f.Policy(ctx, false)
}

// Rules arrive as they are, and changes as they were asked for, with the log saying so.
func TestPolicy(t *testing.T) {
	f := &fakePolicies{}
	var logged []string
	h := NewHandler(Services{Volume: newShelf(), Policies: f}, Mount{Log: func(msg string, args ...any) {
		logged = append(logged, msg)
	}})
	c := InProcess(h)
	defer c.Close()
	p, err := c.Policy(t.Context(), true)
	if err != nil || len(p.Rules) != 1 || p.Rules[0].Pattern != "a b" || p.Rules[0].Covered == nil ||
		*p.Rules[0].Covered != (Covered{Files: 3, Bytes: 4}) {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := c.Policy(t.Context(), false); err != nil || p.Rules[0].Covered != nil {
		t.Errorf("%+v, %v", p, err)
	}
	add := PolicyChange{PolicyAdd, "*.x&y", []string{"a b"}, "plain"}
	if _, err := c.ChangePolicy(t.Context(), add); err != nil {
		t.Error(err)
	}
	if _, err := c.ChangePolicy(t.Context(), PolicyChange{Do: PolicyRemove, Pattern: "b"}); !errors.Is(err,
		fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := c.ChangePolicy(t.Context(), PolicyChange{Do: "burn"}); err == nil {
		t.Error("an unknown change was made")
	}
	if s := strings.Join(f.asked, " "); s != "add|*.x&y|plain|a b remove|b|" {
		t.Errorf("%q", s)
	}
	if err := c.Dropped(t.Context(), "runs/a", []string{"runs/a/1/x"}); err != nil {
		t.Error(err)
	}
	if s := strings.Join(logged, ", "); s != "the policy was changed, optimizer state was removed by the policy" {
		t.Errorf("%q", s)
	}
}
