package runs

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCompare(t *testing.T) {
	want := []string{"", "0", "1", "2", "07", "7", "7a", "10", "010b", "99999999999999999999998",
		"99999999999999999999999", "a", "a1b2", "a1b10", "a2",
		"checkpoint-90", "checkpoint-1000", "epoch=2-step=99", "epoch=2-step=100", "epoch=10-step=5", "é1"}
	got := slices.Clone(want)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
	slices.SortFunc(got, Compare)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// Compare is a total order.
func TestCompareOrder(t *testing.T) {
	name := rapid.StringMatching(`[0-2a/-]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := name.Draw(t, "a"), name.Draw(t, "b"), name.Draw(t, "c")
		if Compare(a, b) != -Compare(b, a) || (Compare(a, b) == 0) != (a == b) {
			t.Fatalf("%q %q: %d, %d", a, b, Compare(a, b), Compare(b, a))
		}
		if Compare(a, b) <= 0 && Compare(b, c) <= 0 && Compare(a, c) > 0 {
			t.Fatalf("%q <= %q <= %q, and not %q <= %q", a, b, c, a, c)
		}
	})
}

func TestParseMetrics(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                      "",
		`{"loss": 0.5, "acc": 1}`: "acc=1 loss=0.5",
		` {"a": NaN, "b": Infinity, "c": -Infinity} `:            "a=NaN b=+Inf c=-Inf",
		`{"val": {"loss": 1, "top": {"5": 2}}, "val/acc": 3}`:    "val/acc=3 val/loss=1 val/top/5=2",
		`{"a": "1", "b": true, "c": null, "d": [1, {"e": 2}]}`:   "",
		`{"s": "NaN is \"Infinity\"", "n": -1e-3}`:               "n=-0.001",
		`{"a\u0041": 1e400, "b": -1e400, "c": 1e-400}`:           "aA=+Inf b=-Inf c=0",
		`{"big": 123456789012345678901234567890, "s":"\u0000x"}`: "big=1.2345678901234568e+29",
	} {
		got, err := ParseMetrics([]byte(in))
		if err != nil || show(got) != want {
			t.Errorf("%s: %s, %v, want %s", in, show(got), err, want)
		}
	}
	for in, want := range map[string]string{
		``:            "unexpected end",
		`[]`:          "no object",
		`1`:           "no object",
		`NaN`:         "no object",
		`{"a": 1`:     "unexpected end",
		`{"a": 1} {}`: "after top-level value",
		`{"a": 1,}`:   "invalid character",
		`{"a": nan}`:  "invalid character",
		// NaN becomes a string, and so a name: with a zero byte, which no name has
		`{NaN: 1}`:                "",
		`{"a": 1, "a": 2}`:        `"a" twice`,
		`{"a": {"b":1}, "a/b":2}`: `"a/b" twice`,
		`{"": 1}`:                 "without name",
		`{"a\n": 1}`:              "control characters",
		"{\"\xff\": 1}":           "not UTF-8",
		`{"` + strings.Repeat("n", 256) + `": 1}`:                       "256 bytes",
		strings.Repeat(`{"a":`, 17) + "1" + strings.Repeat("}", 17):     "nested deeper",
		strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 2e4): "exceeded max depth",
		`{"a": 1, "b": "` + strings.Repeat("x", MaxMetricsFile) + `"}`:  "at most 1048576",
		`{"x": "unterminated NaN`:                                       "unexpected end",
		`{"x": "\`:                                                      "",
		`{` + strings.Repeat(`"%":1,`, MaxMetrics) + `"last":1}`:        "twice",
	} {
		got, err := ParseMetrics([]byte(in))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %s, %v, want %q", in, show(got), err, want)
		}
	}
	var many strings.Builder
	for i := range MaxMetrics + 1 {
		fmt.Fprintf(&many, `,"m%d":1`, i)
	}
	if _, err := ParseMetrics([]byte("{" + many.String()[1:] + "}")); err == nil ||
		!strings.Contains(err.Error(), "more than 4096") {
		t.Errorf("too many: %v", err)
	}
}

func show(m map[string]float64) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s=%v", k, m[k]))
	}
	return strings.Join(out, " ")
}

func TestParseOthers(t *testing.T) {
	orbax := `{"item_handlers": {"pytree": "h"}, "metrics": {"loss": 0.25}, "init_timestamp_nsecs": 17, "custom_metadata": {"metrics": {"x": 1}}}`
	if got, err := ParseOrbax([]byte(orbax)); err != nil || show(got) != "loss=0.25" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := ParseOrbax([]byte(`{"metrics": null}`)); err != nil || show(got) != "" {
		t.Errorf("%v, %v", got, err)
	}
	hf := `{"best_metric": 0.1, "log_history": [{"epoch": 1.0, "loss": 2.5, "step": 10, "": 1, "a/b": 1, "a": {"b": 2}}, {"eval_loss": 2.0, "step": 10}, 7,
		{"epoch": 2.0, "loss": 1.5, "step": 20}, {"eval_loss": NaN, "epoch": 2.0, "step": 20}], "global_step": 20}`
	if got, err := ParseTrainerState([]byte(hf)); err != nil ||
		show(got) != "epoch=2 eval_loss=NaN loss=1.5" {
		t.Errorf("%s, %v", show(got), err)
	}
	for _, s := range []string{`{}`, `{"global_step": "x", "log_history": 3}`, `{"global_step": 1}`} {
		if got, err := ParseTrainerState([]byte(s)); err != nil || len(got) != 0 {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
}

func TestParseValue(t *testing.T) {
	for in, want := range map[string]float64{"0.5": 0.5, " 1e-3\n": 1e-3, "-inf": math.Inf(-1), "3\x00": 3,
		"+Infinity": math.Inf(1)} {
		if got, err := ParseValue([]byte(in)); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	if got, err := ParseValue([]byte("nan")); err != nil || !math.IsNaN(got) {
		t.Errorf("nan: %v, %v", got, err)
	}
	for _, in := range []string{"", " ", "x", "0x1p-2", "1_0", "1 2", "1e400", strings.Repeat("1", 200),
		"1\x002"} {
		if got, err := ParseValue([]byte(in)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	if name, ok := FromXattr("user.metric.val/loss"); name != "val/loss" || !ok {
		t.Error(name, ok)
	}
	for _, s := range []string{"user.metric.", "user.metrics.a", "trusted.metric.a", "user.metric.\xff"} {
		if name, ok := FromXattr(s); ok {
			t.Errorf("%q: %q", s, name)
		}
	}
}

func TestFileName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.StringMatching(`[./%2FEa5]{1,8}`).Draw(t, "metric")
		f := FileName(m)
		if strings.Contains(f, "/") || strings.HasPrefix(f, ".") {
			t.Fatalf("%q: %q", m, f)
		}
		if back, ok := MetricOf(f); back != m || !ok {
			t.Fatalf("%q: %q: %q, %v", m, f, back, ok)
		}
	})
	for _, s := range []string{"", "a%", "%2f", ".a", "a%2E", "a/b"} {
		if m, ok := MetricOf(s); ok {
			t.Errorf("%q: %q", s, m)
		}
	}
}

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func steps(spec string) []Step {
	var out []Step
	for i, s := range strings.Fields(spec) {
		name, v, ok := strings.Cut(s, "=")
		st := Step{Name: strings.TrimSuffix(name, "!"), Complete: !strings.HasSuffix(name, "!"),
			Time: t0.Add(time.Duration(i) * time.Hour)}
		if ok {
			x, err := ParseValue([]byte(v))
			if err != nil {
				panic(err)
			}
			st.Metrics = Metrics{{"loss", x}}
		}
		out = append(out, st)
	}
	return out
}

func TestBest(t *testing.T) {
	for _, c := range []struct{ steps, min, max string }{
		{"", "", ""},
		{"1 2", "", ""},
		{"1=nan", "", ""},
		{"1=nan 2=5 3=nan", "2", "2"},
		{"1=3 2=1 3=1 4=3", "2", "1"},
		{"10=1 9=1", "9", "9"},
		{"1=inf 2=-inf 3=0", "2", "1"},
		{"1!=0 2=1 3!=9", "2", "2"},
		{"1=0 2=-0", "1", "1"},
	} {
		for mode, want := range map[Mode]string{Min: c.min, Max: c.max} {
			all := steps(c.steps)
			got := ""
			if i, ok := Best(all, "loss", mode); ok {
				got = all[i].Name
			}
			if got != want {
				t.Errorf("%s of %s: %q, want %q", mode, c.steps, got, want)
			}
		}
	}
}

func TestDecide(t *testing.T) {
	now := t0.Add(10 * time.Hour)
	for _, c := range []struct {
		name  string
		p     Policy
		steps string
		kept  string
	}{
		{"last", Policy{KeepLast: 2}, "1 2 10 9", "9 10"},
		{"last of fewer", Policy{KeepLast: 5}, "1 2", "1 2"},
		{"last of none", Policy{KeepLast: 5}, "", ""},
		{"last counts no torn one", Policy{KeepLast: 1}, "1 2 3!", "2 3"},
		{"torn in the middle", Policy{KeepLast: 1, ForgetTorn: true}, "1! 2 3!", "2 3"},
		{"only torn ones", Policy{KeepLast: 1, ForgetTorn: true}, "1! 2!", "1 2"},
		{"best", Policy{KeepBest: []KeepBest{{"loss", Min, 2}}}, "1=3 2=nan 3=1 4=2 5=2", "3 4"},
		{"best either way", Policy{KeepBest: []KeepBest{{"loss", Min, 1}, {"loss", Max, 1}}}, "1=3 2=2 3=1",
			"1 3"},
		{"best of one", Policy{KeepBest: []KeepBest{{"loss", Min, 3}}}, "1 2=nan 3=1", "3"},
		{"best of none yet", Policy{KeepBest: []KeepBest{{"loss", Min, 3}}}, "1!", "1"},
		{"within", Policy{KeepWithin: 8 * time.Hour}, "1 2 3 4", "3 4"},
		{"last or best", Policy{KeepLast: 1, KeepBest: []KeepBest{{"loss", Min, 1}}}, "1=1 2=2 3=3", "1 3"},
	} {
		all, err := c.p.Decide(steps(c.steps), now)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var kept []string
		for _, d := range all {
			if d.Keep {
				kept = append(kept, d.Step.Name)
			}
			if len(d.Reasons) == 0 {
				t.Errorf("%s: step %s without a reason", c.name, d.Step.Name)
			}
		}
		if got := strings.Join(kept, " "); got != c.kept {
			t.Errorf("%s: kept %q, want %q", c.name, got, c.kept)
		}
	}
	odd := []Step{{Name: "1", Complete: true, Time: time.Unix(0, 0)},
		{Name: "2", Complete: true, Time: now.Add(48 * time.Hour)},
		{Name: "3", Complete: true, Time: now.Add(-48 * time.Hour)}}
	p := Policy{KeepWithin: time.Hour}
	if ds, err := p.Decide(odd, now); err != nil || !ds[0].Keep || !ds[1].Keep || ds[2].Keep ||
		p.Untimed(odd, now) != 2 || (Policy{KeepLast: 1}).Untimed(odd, now) != 0 {
		t.Errorf("times that cannot be right: %+v, %v", ds, err)
	}
	all, _ := Policy{KeepLast: 1, KeepWithin: 26 * time.Hour,
		KeepBest: []KeepBest{{"loss", Min, 1}}}.Decide([]Step{
		{Name: "1", Complete: true}, {Name: "2", Complete: true, Time: now.Add(time.Hour),
			Metrics: Metrics{{"loss", 1}}}, {Name: "0", Complete: true,
			Time: t0.Add(-48 * time.Hour)}}, now)
	if got := fmt.Sprint(all[0].Reasons, all[1].Reasons,
		all[2].Reasons); got != "[no rule keeps it] [time not known] [one of the last 1 min loss, 1 of 1 within 1d2h]" {
		t.Error(got)
	}
	for _, p := range []Policy{{}, {KeepLast: -1}, {KeepWithin: -1},
		{KeepLast: 1, KeepBest: []KeepBest{{"loss", Min, -1}}}, {KeepBest: []KeepBest{{"loss", Min, 0}}},
		{KeepBest: []KeepBest{{"", Min, 1}}}, {KeepBest: []KeepBest{{"loss", 7, 1}}},
		{KeepLast: 1, KeepBest: []KeepBest{{"lose", Min, 1}}}, {ForgetTorn: true}} {
		if all, err := p.Decide(steps("1=1 2=2"), now); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v, %v", p, all, err)
		}
	}
}

func drawStep(t *rapid.T) Step {
	s := Step{Name: rapid.StringMatching(`[0-9]{1,3}`).Draw(t, "name"),
		Complete: rapid.Bool().Draw(t, "complete")}
	s.Writing = !s.Complete && rapid.Bool().Draw(t, "writing")
	if rapid.Bool().Draw(t, "timed") {
		s.Time = t0.Add(time.Duration(rapid.IntRange(-1000, 1000).Draw(t, "time")) * time.Minute)
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "metrics") {
		value := rapid.SampledFrom([]float64{0, 1, 1, 2, math.NaN(), math.Inf(1), math.Inf(-1)})
		s.Metrics = append(s.Metrics, Metric{fmt.Sprintf("m%d", i), value.Draw(t, "value")})
	}
	return s
}

// What a policy kept it keeps again; with one more rule it keeps no less; what it forgets is complete or
// torn.
func TestDecideTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfNDistinct(rapid.Custom(drawStep), 0, 12,
			func(s Step) string { return s.Name }).Draw(t, "steps")
		p := Policy{KeepLast: rapid.IntRange(0, 3).Draw(t, "last"),
			KeepWithin: time.Duration(rapid.IntRange(0, 900).Draw(t, "within")) * time.Minute,
			ForgetTorn: rapid.Bool().Draw(t, "torn")}
		kept := func(p Policy, all []Step) map[string]bool {
			ds, err := p.Decide(all, t0)
			if err != nil {
				t.Skip(err)
			}
			out := map[string]bool{}
			for _, d := range ds {
				if d.Keep {
					out[d.Step.Name] = true
				} else if !d.Step.Complete && !p.ForgetTorn || d.Step.Writing {
					t.Fatalf("step %s in the writing was forgotten", d.Step.Name)
				}
			}
			return out
		}
		first := kept(p, all)
		var rest []Step
		for _, s := range all {
			if first[s.Name] {
				rest = append(rest, s)
			}
		}
		if again := kept(p, rest); !maps.Equal(first, again) {
			t.Fatalf("kept %v, then %v", first, again)
		}
		p.KeepBest = []KeepBest{{"m0", Max, 2}}
		more := kept(p, all)
		for name := range first {
			if !more[name] {
				t.Fatalf("one more rule, and %s is forgotten", name)
			}
		}
	})
}

func TestAge(t *testing.T) {
	for in, want := range map[string]time.Duration{"7d": 168 * time.Hour, "36h": 36 * time.Hour,
		"1w2d": 216 * time.Hour, "1y": 8760 * time.Hour, "0s": 0, "5m30s": 330 * time.Second} {
		if got, err := ParseAge(in); err != nil || got != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "7", "d", "-1d", "1.5h", "2h1d", "1d1d", "1ms", "1d ", "9999999999999y",
		"106751d24h", "300y", "1é"} {
		if got, err := ParseAge(in); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, 9_000_000_000).Draw(t, "d")) * time.Second
		if got, err := ParseAge(FormatAge(d)); got != d || err != nil {
			t.Fatalf("%v: %s: %v, %v", d, FormatAge(d), got, err)
		}
	})
}

func FuzzMetrics(f *testing.F) {
	f.Add([]byte(`{"a": NaN, "val": {"loss": -1e3, "x": [1, "NaN"]}, "metrics": {"q": 1}, "global_step": 3, "log_history": [{"step": 3, "loss": 1}]}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, parse := range []func([]byte) (map[string]float64, error){ParseMetrics, ParseOrbax,
			ParseTrainerState} {
			m, err := parse(p)
			if err != nil && !errors.Is(err, ErrInvalid) {
				t.Fatalf("error of no kind: %v", err)
			}
			for name := range m {
				if err := CheckName(name); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// Who misspells a metric is told which there are.
func TestUnknownMetric(t *testing.T) {
	p := Policy{KeepBest: []KeepBest{{"lose", Min, 1}}}
	for want, metrics := range map[string]map[string]float64{
		"its complete steps have acc, loss": {"loss": 1, "acc": 2},
		"no complete step has any":          nil,
	} {
		if _, err := p.Decide([]Step{{Name: "1", Complete: true, Metrics: MetricsOf(metrics)}},
			time.Now()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", metrics, err)
		}
	}
}
