package pack

import (
	"fmt"
	"testing"

	"ckptfs/formats"
)

// What does not pay for a short tensor is tried ever less in the steps of its series, and once it pays
// again, in every step.
func TestTrials(t *testing.T) {
	trials := NewTrials()
	short, long := formats.Region{Len: shortTensor}, formats.Region{Len: shortTensor + 1}
	w := &formats.Tensor{Name: "w"}
	tried := 0
	step := func(pays bool) bool {
		c := trials.chancesOf("runs/r1/0/m", &short, w)
		if !c.good() {
			return false
		}
		tried++
		c.tell(pays)
		return true
	}
	const steps = 1000
	for range steps {
		step(false)
	}
	if tried < patience || tried > steps/15 {
		t.Errorf("%d tries in vain of %d", tried, steps)
	}
	passed := 0
	for !step(true) {
		passed++
	}
	if passed > maxPass {
		t.Errorf("%d steps are passed over", passed)
	}
	for range steps {
		if !step(true) {
			t.Fatal("passed over though it pays")
		}
	}
	for i, c := range []chances{
		trials.chancesOf("runs/r2/0/m", &short, w), trials.chancesOf("runs/r1/0/m", &short, nil),
		trials.chancesOf("", &short, w), trials.chancesOf("runs/r1/0/m", &long, w),
	} {
		if c == trials.chancesOf("runs/r1/0/m", &short, w) {
			t.Errorf("%d: the chances of another tensor", i)
		}
	}
	for i := range 2 * maxTrials {
		trials.chancesOf(fmt.Sprint(i), &short, w)
	}
	if n := trials.of.Len(); n != maxTrials {
		t.Errorf("%d are remembered", n)
	}
}

// When deltas begin to pay for one tensor of a series, as after a step of the learning rate, they are tried
// for all, and the first try does not wait for the end of a pause that all make together.
func TestTrialsTogether(t *testing.T) {
	trials := NewTrials()
	short := formats.Region{Len: shortTensor}
	var all []chances
	for i := range 100 {
		all = append(all, trials.chancesOf("runs/r1/0/m", &short, &formats.Tensor{Name: fmt.Sprint(i)}))
	}
	step := func(pays bool) (tried int) {
		for _, c := range all {
			if c.good() {
				c.tell(pays)
				tried++
			}
		}
		return tried
	}
	for range 60 {
		step(false)
	}
	late := 0
	for step(true) < len(all) {
		late++
	}
	if late > maxPass/4 {
		t.Errorf("all are tried after %d steps", late)
	}
}
