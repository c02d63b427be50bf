package share

import (
	"testing"
	"time"
)

// What was left alone long enough is forgotten.
func TestTouchesAreForgotten(t *testing.T) {
	now := time.Now()
	all := touches{
		"runs/x/1": now.Add(-Quiet), "runs/x/2": now.Add(time.Millisecond - Quiet), "runs/x/3": now,
	}
	all.forget(now)
	if _, old := all["runs/x/1"]; old || len(all) != 2 {
		t.Errorf("%v", all)
	}
}
