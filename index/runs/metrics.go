package runs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// XattrPrefix begins the names of attributes that are metrics.
const XattrPrefix = "user.metric."

// FromXattr is the metric that an extended attribute names. False for other attributes.
func FromXattr(name string) (metric string, ok bool) {
	metric, ok = strings.CutPrefix(name, XattrPrefix)
	return metric, ok && CheckName(metric) == nil
}

// ParseValue reads the value of a user.metric.NAME attribute: a number as text, inf, -inf or nan, in white
// space or with the zero byte that some programs set.
func ParseValue(p []byte) (float64, error) {
	s := strings.TrimSpace(strings.TrimSuffix(string(p[:min(len(p), 128)]), "\x00"))
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || len(p) > 128 || strings.ContainsAny(s, "xX_") {
		return 0, invalid("%.40q is not a number", p)
	}
	return v, nil
}

// Source is a file in a step's directory that has metrics.
type Source struct {
	Name  string
	Max   int64 // bytes
	Parse func([]byte) (map[string]float64, error)
}

// Sources are all of them, of which a later one wins, and the attributes of FromXattr over all.
var Sources = []Source{
	{"_CHECKPOINT_METADATA", MaxStateFile, ParseOrbax},
	{"metrics/metrics", MaxMetricsFile, ParseMetrics}, // of Orbax' CheckpointManager
	{"trainer_state.json", MaxStateFile, ParseTrainerState},
	{"metrics.json", MaxMetricsFile, ParseMetrics},
}

// ParseMetrics reads a metrics.json. It takes memory only in proportion to p.
func ParseMetrics(p []byte) (map[string]float64, error) {
	r, err := newReader(p, MaxMetricsFile)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	return out, r.metrics("", out)
}

// ParseOrbax reads the metrics in a _CHECKPOINT_METADATA.
func ParseOrbax(p []byte) (map[string]float64, error) {
	r, err := newReader(p, MaxStateFile)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	return out, r.object(func(key string) error {
		if key != "metrics" || !r.next('{') {
			return r.skip()
		}
		return r.metrics("", out)
	})
}

// ParseTrainerState reads from a trainer_state.json what was logged at the step that it belongs to. A later
// entry of that step wins.
func ParseTrainerState(p []byte) (map[string]float64, error) {
	// global_step may stand behind log_history, so it is looked for first.
	r, err := newReader(p, MaxStateFile)
	if err != nil {
		return nil, err
	}
	step, found := 0.0, false
	err = r.object(func(key string) error {
		if key != "global_step" {
			return r.skip()
		}
		step, found = r.number()
		if !found {
			return r.skip()
		}
		return nil
	})
	if err != nil || !found {
		return nil, err
	}
	if r, err = newReader(p, MaxStateFile); err != nil {
		return nil, err
	}
	r.loose = true // most of it is of other steps
	out := map[string]float64{}
	err = r.object(func(key string) error {
		if key != "log_history" || !r.next('[') {
			return r.skip()
		}
		return r.array(func() error {
			if !r.next('{') {
				return r.skip()
			}
			entry := map[string]float64{}
			if err := r.metrics("", entry); err != nil {
				return err
			}
			if s, ok := entry["step"]; ok && s == step {
				delete(entry, "step")
				for name, v := range entry {
					out[name] = v
				}
			}
			return nil
		})
	})
	return out, err
}

// reader reads JSON token by token, with Python's NaN, Infinity and -Infinity.
type reader struct {
	dec   *json.Decoder
	token json.Token // the next one
	err   error
	depth int
	loose bool // metrics with names that are none, or that came already, are passed over
}

// Python's numbers that JSON has not are read as strings that no writer of metrics would think of.
const special = "\x00"

func newReader(p []byte, limit int) (*reader, error) {
	if len(p) > limit {
		return nil, invalid("%d bytes, of at most %d", len(p), limit)
	}
	if !utf8.Valid(p) {
		return nil, invalid("not UTF-8")
	}
	p = standard(p)
	if !json.Valid(p) {
		var v json.RawMessage
		return nil, invalid("%v", json.Unmarshal(p, &v))
	}
	r := &reader{dec: json.NewDecoder(bytes.NewReader(p))}
	r.dec.UseNumber()
	r.advance()
	return r, nil
}

// standard writes Python's NaN, Infinity and -Infinity as strings.
func standard(p []byte) []byte {
	if !bytes.Contains(p, []byte("NaN")) && !bytes.Contains(p, []byte("Infinity")) {
		return p
	}
	out := make([]byte, 0, len(p)+len(p)/4)
	for i := 0; i < len(p); {
		switch rest := p[i:]; {
		case p[i] == '"':
			n := 1
			for n < len(rest) && rest[n] != '"' {
				if rest[n] == '\\' {
					n++
				}
				n++
			}
			n = min(n+1, len(rest))
			out = append(out, rest[:n]...)
			i += n
		case bytes.HasPrefix(rest, []byte("NaN")):
			out = append(out, `"\u0000NaN"`...)
			i += 3
		case bytes.HasPrefix(rest, []byte("Infinity")):
			out = append(out, `"\u0000Inf"`...)
			i += 8
		case bytes.HasPrefix(rest, []byte("-Infinity")):
			out = append(out, `"\u0000-Inf"`...)
			i += 9
		default:
			out = append(out, p[i])
			i++
		}
	}
	return out
}

func (r *reader) advance() {
	if r.token, r.err = r.dec.Token(); r.err == io.EOF {
		r.token, r.err = nil, nil
	}
}

// next reports whether an object or an array comes next.
func (r *reader) next(open json.Delim) bool { return r.token == open }

// number reads a number. False when something else comes next, which is left.
func (r *reader) number() (float64, bool) {
	s := ""
	switch t := r.token.(type) {
	case json.Number:
		s = string(t)
	case string:
		if !strings.HasPrefix(t, special) {
			return 0, false
		}
		s = t[len(special):]
	default:
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, false
	}
	r.advance()
	return v, true
}

func (r *reader) enter(open json.Delim) error {
	if r.err != nil {
		return invalid("%v", r.err)
	}
	if r.token != open {
		return invalid("no object or array where one is needed, at byte %d", r.dec.InputOffset())
	}
	if r.depth++; r.depth > maxDepth {
		return invalid("nested deeper than %d", maxDepth)
	}
	r.advance()
	return nil
}

func (r *reader) leave() {
	r.depth--
	r.advance()
}

// object calls member for each member, which has to read the value.
func (r *reader) object(member func(key string) error) error {
	if err := r.enter('{'); err != nil {
		return err
	}
	for r.err == nil && r.token != json.Delim('}') {
		key, _ := r.token.(string)
		r.advance()
		if err := member(key); err != nil {
			return err
		}
	}
	r.leave()
	return r.err
}

func (r *reader) array(item func() error) error {
	if err := r.enter('['); err != nil {
		return err
	}
	for r.err == nil && r.token != json.Delim(']') {
		if err := item(); err != nil {
			return err
		}
	}
	r.leave()
	return r.err
}

// skip reads any value.
func (r *reader) skip() error {
	for depth := 0; r.err == nil; {
		switch r.token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		r.advance()
		if depth == 0 {
			break
		}
	}
	return r.err
}

// metrics reads an object into out, names below prefix.
func (r *reader) metrics(prefix string, out map[string]float64) error {
	return r.object(func(key string) error {
		name := prefix + key
		if r.next('{') {
			return r.metrics(name+"/", out)
		}
		v, ok := r.number()
		if !ok {
			return r.skip()
		}
		_, twice := out[name]
		if err := CheckName(name); r.loose && (err != nil || twice) {
			return nil
		} else if err != nil {
			return err
		}
		if twice {
			return invalid("metric %q twice", name)
		}
		if len(out) == MaxMetrics {
			return invalid("more than %d metrics", MaxMetrics)
		}
		out[name] = v
		return nil
	})
}
