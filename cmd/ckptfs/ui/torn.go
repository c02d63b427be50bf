package ui

import (
	"context"
	"path"
	"slices"
	"strings"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/cmd/ckptfs/ui/known"
	"ckptfs/fs/control"
)

// tornNote says of steps that they are torn, and what to do.
type tornNote struct {
	Run   string
	Steps []link // the latest first
	More  int
	// words of command lines; "": it is not mounted, or no step of the run is whole
	Remove []string
	Latest string
}

// mostTorn is how many torn steps are named.
const mostTorn = 5

// tornOf is the note about the torn steps of a run that are wanted; nil: there are none.
func (s *server) tornOf(l *known.Log, wanted func(step string) bool) *tornNote {
	n := &tornNote{Run: l.Run}
	for _, st := range slices.Backward(l.Steps) {
		dir := path.Join("runs", l.Run, st.Name)
		switch {
		case st.State == control.StepComplete && n.Latest == "" && s.at.Mount != nil:
			n.Latest = text.Word(s.at.Full(path.Join(".ckptfs/latest", l.Run)))
		case st.State != control.StepTorn || !wanted(st.Name):
		case len(n.Steps) == mostTorn:
			n.More++
		default:
			n.Steps = append(n.Steps, link{shown(st.Name), pathURL(dir)})
			if s.at.Mount != nil {
				n.Remove = append(n.Remove, "rm -r "+s.full(dir))
			}
		}
	}
	if len(n.Steps) == 0 {
		return nil
	}
	return n
}

// tornSteps are the torn steps of a store, those of the run that was written last first.
type tornSteps struct {
	Steps []link
	More  int64
}

// tornIn are the torn steps of the runs of a list; nil: there are none. A run whose log is not at hand is
// named in their place.
func (s *server) tornIn(list *control.RunList) *tornSteps {
	t := &tornSteps{}
	runs := slices.Clone(list.Runs)
	runs = slices.DeleteFunc(runs, func(r control.Run) bool { return r.Torn == 0 })
	slices.SortStableFunc(runs, func(a, b control.Run) int { return b.Last.Compare(a.Last) })
	for i := range runs {
		r, named := &runs[i], 0
		if l, old := s.runs.Peek(r); l != nil && !old {
			for _, st := range slices.Backward(l.Steps) {
				if st.State == control.StepTorn && len(t.Steps) < mostTorn {
					dir := path.Join("runs", r.Run, st.Name)
					t.Steps = append(t.Steps, link{shown(dir), pathURL(dir)})
					named++
				}
			}
		} else if len(t.Steps) < mostTorn {
			t.Steps = append(t.Steps, link{shown("runs/" + r.Run), withQuery("/run", "run", r.Run)})
			named++
		}
		t.More += int64(max(0, r.Torn-named))
	}
	if len(t.Steps) == 0 {
		return nil
	}
	return t
}

// tornAt is the note about the step that a path is or lies in.
func (s *server) tornAt(ctx context.Context, p string) *tornNote {
	l, _ := s.stepOf(ctx, p)
	if l == nil {
		return nil
	}
	in := strings.TrimPrefix(p, "runs/"+l.Run+"/") + "/"
	return s.tornOf(l, func(step string) bool { return strings.HasPrefix(in, step+"/") })
}
