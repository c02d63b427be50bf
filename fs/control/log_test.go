package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// logged is a volume with one run, of some steps.
type logged struct {
	*shelf
	Models
	steps []Step
}

func (l *logged) Log(_ context.Context, run string, to Listed) (*RunLog, error) {
	if to == nil {
		return &RunLog{Run: "a", Steps: l.steps}, l.fail
	}
	again := make([]Step, 7)
	for n := 0; n < len(l.steps); n += len(again) {
		again = again[:copy(again, l.steps[n:])]
		if err := to(again); err != nil {
			return nil, err
		}
	}
	return &RunLog{Run: "a", Steps: []Step{}}, l.fail
}

func someSteps(n int) []Step {
	steps := make([]Step, n)
	for i := range steps {
		steps[i] = Step{Step: fmt.Sprint(i), State: StepComplete, Time: time.Unix(int64(i), 0).UTC(),
			Files:   i % 3,
			Metrics: map[string]Number{"loss": Number(1 / float64(i+1)), "inf": Number(math.Inf(-1))}}
		if i%2 == 0 {
			steps[i].Metrics = map[string]Number{"lr": 1e-7}
			steps[i].SharedWith, steps[i].SharedBytes, steps[i].Problem = "<0>", 5, "bad"
		}
	}
	return steps
}

// collect takes steps, which are another's then.
func collect(to *[]Step) Listed {
	return func(some []Step) error {
		for _, st := range some {
			metrics := map[string]Number{}
			for name, m := range st.Metrics {
				metrics[name] = m
			}
			st.Metrics = metrics
			*to = append(*to, st)
		}
		return nil
	}
}

// TestLog: the steps of a run arrive in order, whether they are wanted some at a time or in the RunLog.
func TestLog(t *testing.T) {
	for _, n := range []int{0, 1, 7, stepsAtATime, 2*stepsAtATime + 3} {
		v := &logged{shelf: newShelf(), steps: someSteps(n)}
		c := InProcess(NewHandler(allOf(v), Mount{}))
		whole, err := c.Log(t.Context(), "runs/a", nil)
		if err != nil || whole.Run != "a" || !reflect.DeepEqual(whole.Steps, v.steps) {
			t.Errorf("%d steps: %+v, %v", n, whole, err)
		}
		got := []Step{}
		l, err := c.Log(t.Context(), "runs/a", collect(&got))
		if err != nil || l.Run != "a" || len(l.Steps) > 0 || !reflect.DeepEqual(got, v.steps) {
			t.Errorf("%d steps, some at a time: %+v, %v\n%+v", n, l, err, got)
		}
		if n == 0 {
			v.fail = &fs.PathError{Op: "log", Path: "a", Err: fs.ErrNotExist}
			if _, err := c.Log(t.Context(), "runs/a", collect(&got)); !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
			continue
		}
		enough := errors.New("enough")
		if _, err := c.Log(t.Context(), "runs/a", func([]Step) error { return enough }); err != enough {
			t.Errorf("%d steps, of which the first are enough: %v", n, err)
		}
		v.fail = errors.New("it went wrong when some were sent")
		if _, err := c.Log(t.Context(), "runs/a", collect(&got)); !WentAway(err) {
			t.Errorf("%d steps, cut short: %v", n, err)
		}
	}
}

// A log that is cut short, or none, is an error, wherever it ends.
func TestLogCutShort(t *testing.T) {
	v := &logged{shelf: newShelf(), steps: someSteps(2)}
	rec := httptest.NewRecorder()
	NewHandler(allOf(v), Mount{}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/v1/log?path=runs/a", nil))
	whole := rec.Body.String()
	for n := range whole {
		answer := whole[:n]
		c := InProcess(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, answer)
		}))
		var got []Step
		if _, err := c.Log(t.Context(), "runs/a", collect(&got)); n < len(whole)-1 && !WentAway(err) {
			t.Errorf("%q: %v", answer, err)
		}
	}
	c := InProcess(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"runs":[]}`)
	}))
	if _, err := c.Log(t.Context(), "runs/a", collect(new([]Step))); err == nil {
		t.Error("an answer of another kind is a log")
	}
}

// What root sends is sent without the caller's reading it, up to a bound.
func TestRoomToSend(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the kernel lets root alone have it keep more")
	}
	sent := make(chan error, 1)
	at := filepath.Join(t.TempDir(), "s")
	srv, err := ServeAt(at, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, sendBuffer/2))
		sent <- err
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close(context.Background()) })
	conn, err := net.Dial("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err = <-sent:
	case <-time.After(20 * time.Second):
		err = errors.New("it waits for its reader")
	}
	conn.Close()
	if err != nil {
		t.Error(err)
	}
}
