package ui

import (
	"testing"

	"ckptfs/cmd/ckptfs/ui/known"
	"ckptfs/fs/control"
)

// The last value of a run is not that of a torn step.
func TestLastIsNotTorn(t *testing.T) {
	l := &known.Log{Run: "a"}
	v := known.Values{Of: []float64{3, 2, 1, 0}, Has: []bool{true, true, true, false}}
	for i, state := range []string{control.StepComplete, control.StepWriting, control.StepTorn,
		control.StepComplete} {
		l.Steps = append(l.Steps, known.Step{Name: string(rune('1' + i)), State: state})
	}
	if last := valueOf(l, v, l.Last(v)); last == nil || last.Step != "2" || last.Value != 2 {
		t.Errorf("%+v", last)
	}
	l.Steps[0].State, l.Steps[1].State = control.StepTorn, control.StepTorn
	if last := valueOf(l, v, l.Last(v)); last != nil {
		t.Errorf("%+v", last)
	}
}
