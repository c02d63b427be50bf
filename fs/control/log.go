package control

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
)

// Listed takes the steps of a run, some at a time, in order: a run may have very many. They are another's
// once it returns. An error of it ends the request. Where it is nil, they are in the RunLog.
type Listed func([]Step) error

// stepsAtATime is how many a client hands over at once.
const stepsAtATime = 64

// wireBuffer is the bytes that are sent at once of an answer that is made while it is sent.
const wireBuffer = 64 << 10

// logWriter writes a RunLog as one JSON object, as every version of ckptfs reads it, its steps as they come.
type logWriter struct {
	*bufio.Writer
	run   string
	begun bool
}

// take begins the object, or goes on with it.
func (w *logWriter) take(some []Step) error {
	enc := json.NewEncoder(w)
	for i := range some {
		if err := w.next(); err != nil {
			return err
		}
		if err := enc.Encode(&some[i]); err != nil {
			return err
		}
	}
	return nil
}

func (w *logWriter) next() error {
	if w.begun {
		return w.WriteByte(',')
	}
	w.begun = true
	return w.begin()
}

func (w *logWriter) begin() error {
	run, err := json.Marshal(w.run)
	if err == nil {
		_, err = fmt.Fprintf(w, `{"run":%s,"steps":[`, run)
	}
	return err
}

// end writes the rest.
func (w *logWriter) end() error {
	if !w.begun {
		if err := w.begin(); err != nil {
			return err
		}
	}
	if _, err := w.WriteString("]}\n"); err != nil {
		return err
	}
	return w.Flush()
}

// log answers with a RunLog. What an error ends once it has begun has no end, which the client sees.
func (h *Handler) log(m Models) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		p, err := pathOf(r)
		out := &logWriter{Writer: bufio.NewWriterSize(w, wireBuffer), run: path.Base(p)}
		if err == nil {
			_, err = m.Log(r.Context(), p, out.take)
		}
		switch {
		case err == nil:
			_ = out.end() // a write that fails means that the caller has gone
		case !out.begun:
			writeError(w, AsError(err))
		}
	}
}

// Log is Models.Log.
func (c *Client) Log(ctx context.Context, run string, steps Listed) (*RunLog, error) {
	query := url.Values{"path": {run}}
	if steps == nil {
		return ask[RunLog](ctx, c, http.MethodGet, "log", query)
	}
	body, err := c.send(ctx, http.MethodGet, "log", query)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	in := &logReader{Decoder: json.NewDecoder(body)}
	run, err = in.begin()
	for err == nil && in.More() {
		var some []Step
		if some, err = in.some(); err == nil {
			if err := steps(some); err != nil {
				return nil, err
			}
		}
	}
	if err == nil {
		err = in.want(json.Delim(']'), json.Delim('}'))
	}
	if err != nil {
		return nil, gone(ctx, err)
	}
	return &RunLog{Run: run, Steps: []Step{}}, nil
}

// logReader reads what a logWriter wrote.
type logReader struct {
	*json.Decoder
	steps [stepsAtATime]Step // read again and again
}

func (r *logReader) begin() (run string, err error) {
	if err = r.want(json.Delim('{'), "run"); err == nil {
		err = r.Decode(&run)
	}
	if err == nil {
		err = r.want("steps", json.Delim('['))
	}
	return run, err
}

func (r *logReader) want(tokens ...json.Token) error {
	for _, want := range tokens {
		if t, err := r.Token(); err != nil {
			return err
		} else if t != want {
			return fmt.Errorf("%v, where a log has %v", t, want)
		}
	}
	return nil
}

// some reads the next steps, if there are any.
func (r *logReader) some() ([]Step, error) {
	for i := range r.steps {
		if !r.More() {
			return r.steps[:i], nil
		}
		st := &r.steps[i]
		clear(st.Metrics)
		*st = Step{Metrics: st.Metrics}
		if err := r.Decode(st); err != nil {
			return nil, err
		}
	}
	return r.steps[:], nil
}
