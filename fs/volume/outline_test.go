package volume

import (
	"fmt"
	"testing"

	"ckptfs/fs/control"
)

func (r *rig) outline(o control.OutlineOptions) *control.Outline {
	r.t.Helper()
	out, err := r.Outline(r.test.Context(), o)
	if err != nil {
		r.t.Fatalf("%+v: %v", o, err)
	}
	return out
}

// A part of a file's tensors is told, with the models that first stored them; of many one level of names.
func TestOutline(t *testing.T) {
	r := newRig(t)
	r.save("a/1", "abcd")
	r.save("a/2", "aXcd")
	const p = "runs/a/2/m.safetensors"
	told := func(o control.OutlineOptions) (s string) {
		o.Path = p
		out := r.outline(o)
		owned := func(t *control.Owned) string {
			by := "?"
			if m := out.Owner(t); m != nil {
				by = m.Path
			}
			return fmt.Sprintf("%s of %s in %d", t.Name, by, t.Shared)
		}
		s = fmt.Sprintf("%d/%d:", out.Below, out.Count)
		for i := range out.Listed {
			s += " " + owned(&out.Listed[i]) + ";"
		}
		for i := range out.Level {
			l := &out.Level[i]
			s += fmt.Sprintf(" %s %d %d", l.Name, l.Tensors, l.Shared)
			if l.Tensor != nil {
				s += " " + owned(l.Tensor)
			}
			s += ";"
		}
		if out.More {
			s += " more"
		}
		return s
	}
	const first = "runs/a/1/m.safetensors"
	for want, o := range map[string]control.OutlineOptions{
		"4/4: a of " + first + " in 1; b of " + p + " in 0; c of " + first + " in 1; d of " + first +
			" in 1;": {Most: 4},
		"1/4: b of " + p + " in 0;":     {Most: 4, Prefix: "b"},
		"1/3: c of " + first + " in 1;": {Most: 4, Prefix: "c", Exact: true},
		"0/4:":                          {Most: 4, Prefix: "c.", Exact: true},
		"4/4: a 1 1 a of " + first + " in 1; b 1 0 b of " + p + " in 0; more": {Most: 3, Names: 2},
	} {
		if got := told(o); got != want {
			t.Errorf("%+v: %s\nwant %s", o, got, want)
		}
	}
	r.write("deep.safetensors", weights(t, []string{"x.0.w", "x.1.w", "x.1/", "y"}, random(8, 1),
		random(8, 2), random(8, 3), random(8, 4)))
	r.sync()
	r.write("deeper.safetensors", weights(t, []string{"m.l.0.b", "m.l.0.w", "m.l.10.w"}, random(8, 1),
		random(8, 2), random(8, 3)))
	r.sync()
	for want, o := range map[string]control.OutlineOptions{
		"m.l.0. 2; m.l.10. 1;": {Path: "deeper.safetensors"},
		"l.0. 2; l.10. 1;":     {Path: "deeper.safetensors", Prefix: "m."},
		"b 1; w 1;":            {Path: "deeper.safetensors", Prefix: "m.l.0."},
		"x. 3; y 1;":           {},
		"0. 1; 1. 1; 1/ 1;":    {Prefix: "x."},
	} {
		if o.Names = 9; o.Path == "" {
			o.Path = "deep.safetensors"
		}
		got := ""
		for _, l := range r.outline(o).Level {
			got += fmt.Sprintf("%s %d; ", l.Name, l.Tensors)
		}
		if got != want+" " {
			t.Errorf("%+v: %q, want %q", o, got, want)
		}
	}
	if _, err := r.Outline(t.Context(), control.OutlineOptions{Path: "none"}); err == nil {
		t.Error("what is not there has an outline")
	}
}
