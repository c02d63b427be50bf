package ui

import (
	"encoding/json"
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

// Curves and their scales leave out what torn steps have.
func TestTornIsNotDrawn(t *testing.T) {
	l := &known.Log{Run: "a", Metrics: map[string]known.Values{"loss": {Of: []float64{3, 900, 2, 800},
		Has: []bool{true, true, true, true}}}}
	for i, state := range []string{control.StepComplete, control.StepTorn, control.StepComplete,
		control.StepTorn} {
		l.Steps = append(l.Steps, known.Step{Name: string(rune('1' + i)), State: state})
	}
	v := l.Metrics["loss"]
	if s := spark(v.Of, l.Whole(v)); s != "0.0,1.0 100.0,23.0" {
		t.Errorf("the sparkline is %q", s)
	}
	drawn := curveOf([]*known.Log{l}, "loss").Data.(lines)
	b, err := json.Marshal(drawn.Series[0].Points)
	if want := `[[1,3,"1"],[3,2,"3"],[4,null,"4"]]`; err != nil || string(b) != want || len(drawn.Torn) != 2 {
		t.Errorf("%s, %v, and marks %v", b, err, drawn.Torn)
	}
}
