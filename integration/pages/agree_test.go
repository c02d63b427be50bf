package pages

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// The list of runs and the page of a run tell of the same steps: what one page told, no page forgets that is
// asked for then.
func TestAgree(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	step := func(n int) {
		m.Must(os.MkdirAll(m.Path("runs/a", fmt.Sprint(n)), 0o755))
		m.Write(fmt.Sprintf("runs/a/%d/metrics.json", n), fmt.Appendf(nil, `{"loss": %g}`, 1/float64(n)))
	}
	for n := range 5 {
		step(n + 1)
	}
	get := client(t, serve(t, m.Dir))
	ask := func(page string, to any) {
		t.Helper()
		status, body, _ := get(page)
		if status != 200 {
			t.Fatalf("%s: %d: %s", page, status, body)
		}
		m.Must(json.Unmarshal([]byte(body), to))
	}
	list := func() int {
		var of struct{ Runs []struct{ Steps int } }
		ask("/runs?json=1", &of)
		return of.Runs[0].Steps
	}
	log := func() int {
		var of struct{ Steps []any }
		ask("/run?run=a&json=1", &of)
		return len(of.Steps)
	}
	told := log()
	for n := 6; n < 10; n++ {
		step(n)
		ways := []func() int{list, log}
		if n%2 == 1 {
			ways = []func() int{log, list}
		}
		m.Must(daemon.Until(fmt.Sprintf("%d steps", n), func() bool {
			for _, of := range ways {
				now := of()
				if now < told {
					t.Fatalf("a page has %d steps after another had %d", now, told)
				}
				told = now
			}
			return told == n
		}))
	}
}
