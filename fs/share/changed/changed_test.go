package changed

import (
	"testing"
	"time"
)

// What was left alone long enough is forgotten.
func TestForgotten(t *testing.T) {
	now := time.Now()
	l := New(func() time.Time { return now }, time.Second)
	l.Touched("runs/x/1/f")
	now = now.Add(time.Millisecond)
	l.Touched("runs/x/2")
	now = now.Add(time.Second - time.Millisecond)
	l.Touched("runs/x/3")
	l.Pushed(nil, nil, nil)
	if _, old := l.touched["runs/x/1"]; old || len(l.touched) != 2 {
		t.Errorf("%v", l.touched)
	}
}
