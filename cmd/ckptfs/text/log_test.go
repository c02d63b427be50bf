package text

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"ckptfs/fs/control"
)

// logOf hands over steps, one and then two at a time.
func logOf(steps []control.Step) func(control.Listed) (*control.RunLog, error) {
	return func(to control.Listed) (*control.RunLog, error) {
		if len(steps) > 0 {
			if err := to(steps[:1]); err != nil {
				return nil, err
			}
			for some := range slices.Chunk(steps[1:], 2) {
				if err := to(some); err != nil {
					return nil, err
				}
			}
		}
		return &control.RunLog{}, nil
	}
}

var someSteps = []control.Step{
	{Step: "1", State: control.StepComplete, Time: time.Unix(0, 0), LogicalBytes: 3 << 20, NewBytes: 3 << 20,
		StoredBytes: 1 << 20},
	{Step: "2<", State: control.StepTorn, LogicalBytes: 5, PlainBytes: 5, SharedWith: "1",
		SharedBytes: 1 << 10, Metrics: map[string]control.Number{"loss": 0.5, "acc": 1e-7}},
	{Step: "3\n", State: control.StepComplete, Problem: "no\x1b"},
	{Step: "4", State: control.StepComplete, Metrics: map[string]control.Number{}},
}

// A log whose steps come some at a time is the JSON of all of it.
func TestLogAsJSON(t *testing.T) {
	for n := range len(someSteps) + 1 {
		for _, run := range []string{"a", `a"]<`} {
			var want, got bytes.Buffer
			whole := control.RunLog{Run: run, Steps: someSteps[:n]}
			if err := JSON(&want, "").Encode(whole); err != nil {
				t.Fatal(err)
			}
			err := LogAsJSON(&got, run, logOf(whole.Steps))
			if err != nil || got.String() != want.String() {
				t.Errorf("%d steps: %v\n%s\nwant\n%s", n, err, &got, &want)
			}
		}
	}
	full := errors.New("full")
	w := writer(func([]byte) (int, error) { return 0, full })
	if err := LogAsJSON(w, "a", logOf(someSteps)); err != full {
		t.Errorf("a disk that is full: %v", err)
	}
	cut := func(control.Listed) (*control.RunLog, error) { return nil, io.ErrUnexpectedEOF }
	if err := LogAsJSON(w, "a", cut); err != io.ErrUnexpectedEOF {
		t.Errorf("no log: %v", err)
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestLogAsTable(t *testing.T) {
	var b bytes.Buffer
	if err := Log(&b, logOf(someSteps)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for i, want := range [][]string{
		{"STEP", "STATE", "WRITTEN", "SIZE", "NEW", "STORED", "SHARED", "METRICS"},
		{"1", "complete", time.Unix(0, 0).Format(time.DateTime), "3.00 MiB", "3.00 MiB",
			"1.00 MiB"},
		{"2<", "torn", "5 B", "0 B", "0 B", "1.00 KiB with 1", "acc=1e-07 loss=0.5"},
		{`"3\n"`, "complete", "0 B", "0 B", "0 B"}, {"4", "complete", "0 B", "0 B", "0 B"},
		strings.Fields("NEW is what no step above has, before compression and deltas; STORED is what that " +
			"takes. `ckptfs du` says what removing a step gives back."),
		{`"3\n": "no\x1b"`},
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != strings.Join(want, " ") {
			t.Errorf("%q, want %q", got, fmt.Sprint(want))
		}
	}
}
