package models

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ckptfs/fs/control"
	"ckptfs/fs/policy"
)

// Only complete steps are old that come before the last one that the run can be gone on from, and none of the
// last ones of these.
func TestOldSteps(t *testing.T) {
	now := time.Now()
	// A step is its name, with a sign of its state, and its age in days: t torn, w being written, a about to
	// arrive, n complete and written to just now.
	log := func(last, spec string) *control.RunLog {
		l := &control.RunLog{Run: "runs/a", Last: last}
		states := map[byte]string{'t': control.StepTorn, 'w': control.StepWriting, 'a': control.StepArriving}
		for word := range strings.FieldsSeq(spec) {
			name, days, _ := strings.Cut(word, ":")
			st := control.Step{Step: name, State: control.StepComplete}
			age := 0
			fmt.Sscan(days, &age)
			st.Time = now.Add(-time.Duration(age) * 24 * time.Hour)
			if s := states[name[0]]; s != "" {
				st.Step, st.State = name[1:], s
			}
			l.Steps = append(l.Steps, st)
		}
		return l
	}
	for _, c := range []struct{ last, steps, rule, want string }{
		{"5", "1:9 2:8 3:7 4:6 5:5", "keep-last=2", "1 2 3"},
		{"5", "1:9 2:8 3:7 4:6 5:5", "keep-last=9", ""},
		{"5", "1:9 2:8 3:7 4:6 5:5", "keep-last=2 older-than=8d", "1"},
		{"3", "1:9 2:8 3:7 4:6 5:5", "keep-last=2", "1"},        // 4 and 5 are not whole
		{"4", "1:9 t2:8 3:7 4:6 t5:5", "keep-last=2", "1"},      // torn ones count for nothing
		{"3", "1:9 w2:8 3:7", "keep-last=2", ""},                // nor do those being written
		{"4", "1:9 a2:8 3:7 4:6", "keep-last=2", "1"},           // or about to arrive
		{"4", "1:9 2:0 3:7 4:6", "keep-last=2", "1"},            // or that were written to just now
		{"", "1:9 2:8 3:7 4:6", "keep-last=2", ""},              // no step is whole
		{"7", "1:9 2:8 3:7 4:6", "keep-last=2", ""},             // it went
		{"3", "best:9 1:9 2:8 3:7 zeta:7", "keep-last=2", "1"},  // no numbers
		{"m", "k:9 l:8 m:7 n:6", "keep-last=2", "k"},            // none of them has
		{"10", "8:9 9:8 10:7 1:10", "keep-last=2", "1 8"},       // in the order in which people count
		{"2", "1:9 2:8", "keep-last=2", ""},                     // there are no more
		{"3", "1:0 2:0 3:0", "keep-last=2", ""},                 // all are new
		{"9", "1:9 2:8 3:7 t9:1", "keep-last=2", "1"},           // two complete ones remain
		{"4", "1:9 2:8 3:7 4:6 5:-99999", "keep-last=2", "1 2"}, // a clock that was set wrong
	} {
		r, err := policy.ParseRule("runs/**", strings.Fields("drop-optimizer "+c.rule)...)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for name := range oldSteps(log(c.last, c.steps), r, now) {
			got = append(got, name)
		}
		slices.Sort(got)
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s of %s, %s: %q, want %q", c.rule, c.steps, c.last, s, c.want)
		}
	}
}
