package text

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"ckptfs/fs/control"
)

// NoSteps is what is said of a run without steps.
const NoSteps = "no steps: a step is a folder of the run that holds files, or a checkpoint whose name has a number"

// Log prints a run's log as a table.
func Log(w io.Writer, log func(control.Listed) (*control.RunLog, error)) error {
	paint := Paints(w)
	var rows [][]string
	var problems []string
	_, err := log(func(some []control.Step) error {
		for i := range some {
			s := &some[i]
			rows = append(rows, stepRow(s, paint))
			if s.Problem != "" {
				problems = append(problems, Printable(s.Step)+": "+Printable(s.Problem))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	Table(w, []string{"STEP", "STATE", "WRITTEN", ">SIZE", ">NEW", ">STORED", "SHARED", "METRICS"}, rows)
	if len(rows) == 0 {
		fmt.Fprintln(w, NoSteps)
	}
	if len(rows) > 0 {
		fmt.Fprintln(w, "NEW is what no step above has, before compression and deltas; STORED is what that takes. "+
			"`ckptfs du` says what removing a step gives back.")
	}
	for _, p := range problems {
		fmt.Fprintln(w, paint.Bad(p))
	}
	return nil
}

// leastPlain is how much of a step must not be packed to be worth a word: small files never are.
const leastPlain = 64 << 10

// state is a step's, in its colour.
func state(s *control.Step, paint Paint) string {
	switch {
	case s.State == control.StepTorn:
		return paint.Bad(s.State)
	case s.Unfinished():
		return paint.Doubtful(s.State)
	}
	return s.State
}

func stepRow(s *control.Step, paint Paint) []string {
	fresh := Bytes(s.NewBytes)
	if s.PlainBytes >= leastPlain {
		fresh += " + " + Bytes(s.PlainBytes) + " not packed"
	}
	shared := ""
	if s.SharedWith != "" {
		shared = Bytes(s.SharedBytes) + " with " + s.SharedWith
	}
	metrics := make([]string, 0, len(s.Metrics))
	for _, name := range slices.Sorted(maps.Keys(s.Metrics)) {
		metrics = append(metrics, name+"="+s.Metrics[name].String())
	}
	return []string{Printable(s.Step), state(s, paint), Time(s.Time), Bytes(s.LogicalBytes), fresh,
		Bytes(s.StoredBytes), Printable(shared),
		Printable(strings.Join(metrics, " "))}
}

// LogAsJSON prints a run's log as JSON would, its steps as they come.
func LogAsJSON(out io.Writer, run string, log func(control.Listed) (*control.RunLog, error)) error {
	var frame, part bytes.Buffer
	if err := JSON(&frame, "").Encode(control.RunLog{Run: run, Steps: []control.Step{}}); err != nil {
		return err
	}
	end := bytes.LastIndexByte(frame.Bytes(), ']')
	before, after := string(frame.Bytes()[:end]), string(frame.Bytes()[end:])
	w, enc := bufio.NewWriter(out), JSON(&part, "  ")
	_, err := log(func(some []control.Step) error {
		part.Reset()
		if err := enc.Encode(some); err != nil {
			return err
		}
		if _, err := w.WriteString(before); err != nil {
			return err
		}
		before, after = ",", "\n  ]\n}\n"
		_, err := w.Write(part.Bytes()[len("[") : part.Len()-len("\n  ]\n")])
		return err
	})
	if err != nil {
		return err
	}
	if before != "," {
		after = before + after
	}
	if _, err := w.WriteString(after); err != nil {
		return err
	}
	return w.Flush()
}
