package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/cmd/ckptfs/ui/curve"
	"ckptfs/fs/control"
)

// storeBody is the first page.
type storeBody struct {
	Stats   *control.Stats
	Status  *control.Status
	Wrong   []string // what is wrong, worst first
	Damaged *damaged // nil: no file is known to be
	Torn    *tornSteps
	Savings []saving
	Chart   chart
	Growth  chart // of the runs
	Warm    string
	Back    []gain
	Example string // a file to save to
	Check   string // the command
	Runs    string // likewise
}

// Grew reports whether there is a step.
func (b *storeBody) Grew() bool {
	of, ok := b.Growth.Data.(lines)
	return ok && len(of.Series) > 0 && len(of.Series[0].Points) > 0
}

// Actions are what a form can ask for here.
func (*storeBody) Actions() []string { return []string{"sync", "prune", "evict"} }

// saving is one way by which the store is smaller than what was saved.
type saving struct {
	How, What           string
	Before, After, Less int64 // bytes
}

// gain is room that can be had, and how.
type gain struct {
	What    string
	Bytes   int64
	Command string
}

// chart is drawn by the script.
type chart struct {
	Kind    string // "lines", "bars", "heat", "graph"
	Caption string
	Data    any
}

func notThere(format string, args ...any) error { return control.NotFound(format, args...) }

func (s *server) store(ctx context.Context, _ *http.Request) (*page, error) {
	st, err := s.c.Stats(ctx)
	if err != nil {
		return nil, err
	}
	status, err := s.c.Status(ctx)
	if err != nil {
		return nil, err
	}
	b := &storeBody{Stats: st, Status: status, Wrong: wrong(status, st, s.root()), Savings: savings(st)}
	b.Damaged = damagedOf(status.LastCheck)
	b.Chart = savingsChart(b.Savings)
	b.Back = s.gains(st)
	b.Check, b.Runs = "ckptfs check "+s.root(), "ckptfs runs "+s.root()
	b.Example = s.at.Full("runs/first/1/model.pt")
	list, err := s.runs.List(ctx)
	if err != nil {
		return nil, err
	}
	p := &page{Name: "store", Title: "Store", Here: "store", Body: b,
		Data:     map[string]any{"stats": st, "status": status},
		Commands: []string{"ckptfs stats " + s.root(), "ckptfs status " + s.root()}}
	s.runs.Logs(ctx, list)
	b.Torn = s.tornIn(list)
	if n, done := s.runs.Warmed(); done {
		b.Growth = s.growth(list)
	} else {
		b.Warm = fmt.Sprintf("reading the logs of runs: %d of %d", n, len(list.Runs))
		p.Refresh = 2
	}
	return p, nil
}

// wrong lists what is wrong with a store, worst first. root is the store in commands.
func wrong(st *control.Status, counted *control.Stats, root string) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if l := st.Loss; l != nil {
		for _, f := range l.Files {
			say("%s may have lost bytes: %s", shown(f.Path), f.Reason)
		}
		if l.More > 0 {
			say("%s more may have lost bytes: the daemon's log names them", text.Plural(int64(l.More), "file"))
		}
		if l.Other != "" {
			say("%s", l.Other)
		}
	}
	if n := counted.Lost; n > 0 && st.Loss == nil {
		say("the disk did not take all that was written of %s", text.Plural(n, "packed file"))
	}
	if n := counted.Damaged; n > 0 {
		say("%s cannot be read as a whole: ckptfs check %s names them, and the repair", text.Plural(n, "packed file"), root)
	}
	if c := st.LastCheck; c != nil && c.Problems > 0 {
		say("checks found %s: %s lists what is damaged, and the repair",
			text.Plural(c.Problems, "problem"), text.CheckOf(c)+" "+root)
	}
	for _, f := range st.Failures {
		say("%s: %s (tried %s)", shown(f.Path), f.Reason, text.Plural(int64(f.Attempts), "time"))
	}
	if r := st.Remote; r != nil {
		if r.Problem != "" {
			say("nothing is published: %s", r.Problem)
		}
		if o := r.Offline; o != nil {
			say("the remote is not reached since %s: %s; %s", text.Time(o.Since), o.Why, o.Do)
		}
		if r.Conflicts != nil && *r.Conflicts > 0 {
			say("%s with several versions: ckptfs conflicts lists them", text.Plural(int64(*r.Conflicts), "name"))
		}
	}
	if st.DiskBytes > 0 && st.FreeBytes < st.DiskBytes/20 {
		say("the disk is nearly full: %s of %s are free", text.Bytes(st.FreeBytes), text.Bytes(st.DiskBytes))
	}
	if n := len(st.Plain); n > 0 {
		say("%s not packed that should be: ckptfs status tells why", text.Plural(int64(n), "file"))
	}
	for _, c := range st.Sidecars {
		say("%s", cut(c, mostTitle))
	}
	if n := st.MoreSidecars; n > 0 {
		say("%s more of what steps say of their models", text.Plural(int64(n), "such problem"))
	}
	return out
}

// savings tell by what the store is smaller than the files in it that are packed.
func savings(st *control.Stats) []saving {
	all := []saving{{"equal parts", "stored once, however many files have them", st.PackedBytes,
		st.UniqueBytes, st.PackedBytes - st.UniqueBytes}}
	what := map[string]string{
		"delta":    "stored as the difference from an earlier version",
		"patch":    "text and structure, as the difference from an earlier version",
		"rounded":  "half precision that is another file's, rounded",
		"low rank": "a difference of low rank: adapters that were merged",
		"recipe":   "computed from other tensors: quantised, merged, cut, in another order",
		"planes":   "numbers, compressed by significance",
		"zstd":     "the rest, compressed",
		"raw":      "stored as it is: random, or small",
	}
	for _, codec := range []string{"delta", "rounded", "low rank", "recipe", "patch", "planes", "zstd",
		"raw"} {
		for _, e := range st.Encodings {
			if e.Codec == codec {
				all = append(all, saving{codec, what[codec], e.RawBytes, e.Bytes, e.RawBytes - e.Bytes})
			}
		}
	}
	return all
}

// bars are values by category.
type bars struct {
	Categories []string    `json:"categories"`
	Series     []barSeries `json:"series"`
	Bytes      bool        `json:"bytes"`
	Horizontal bool        `json:"horizontal"`
}

type barSeries struct {
	Name   string   `json:"name"`
	Values []number `json:"values"`
}

func savingsChart(all []saving) chart {
	b := bars{Bytes: true, Horizontal: true, Series: []barSeries{{Name: "saving"}, {Name: "stored"}}}
	for i, s := range slices.Backward(all) {
		b.Categories = append(b.Categories, s.How)
		after := s.After
		if i == 0 {
			after = 0 // these are stored by the others
		}
		b.Series[0].Values = append(b.Series[0].Values, number(max(s.Less, 0)))
		b.Series[1].Values = append(b.Series[1].Values, number(after))
	}
	return chart{"bars", "What is stored, and what that saves, by the way it is stored", b}
}

// lines are curves.
type lines struct {
	Title  string      `json:"title,omitempty"`
	X      string      `json:"x"` // "step", "time"
	Bytes  bool        `json:"bytes"`
	Series []lineCurve `json:"series"`
	Torn   []string    `json:"torn,omitempty"`
}

type lineCurve struct {
	Name   string   `json:"name"`
	Points [][]any  `json:"points"` // x, y, and what it is called
	Best   []any    `json:"best,omitempty"`
	Href   string   `json:"href,omitempty"` // of a point: before what it is called
	Names  []string `json:"-"`
}

// growth is how the size of all steps grew, and what of it was new.
func (s *server) growth(list *control.RunList) chart {
	type step struct {
		at           float64
		logical, new int64
	}
	var all []step
	for i := range list.Runs {
		l, _ := s.runs.Peek(&list.Runs[i])
		if l == nil {
			continue
		}
		for k := range l.Steps {
			if st := &l.Steps[k]; !st.Time.IsZero() {
				all = append(all, step{float64(st.Time.UnixMilli()), st.Logical, st.New})
			}
		}
	}
	slices.SortFunc(all, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	x, logical, fresh := make([]float64, len(all)), make([]float64, len(all)), make([]float64, len(all))
	var sum, sumNew int64
	for i, a := range all {
		sum, sumNew = sum+a.logical, sumNew+a.new
		x[i], logical[i], fresh[i] = a.at, float64(sum), float64(sumNew)
	}
	of := func(name string, y []float64) lineCurve {
		c := lineCurve{Name: name}
		for _, p := range curve.Reduce(x, y, nil, 200) {
			c.Points = append(c.Points, []any{p.X, number(p.Y)})
		}
		return c
	}
	return chart{"lines", "Size of the steps of all runs, and what of it no step of their run had before",
		lines{X: "time", Bytes: true, Series: []lineCurve{of("size", logical), of("new", fresh)}}}
}

// gains is what can be given back, and by what.
func (s *server) gains(st *control.Stats) []gain {
	out := []gain{{"what no file needs any more", st.DeadBytes, "ckptfs prune --grace 0 --max-unused 0 " + s.root()}}
	if st.CopiesBytes > 0 {
		out = append(out, gain{"local copies of packed files: a cache", st.CopiesBytes,
			"ckptfs evict " + s.root()})
	}
	if st.Waiting.Bytes > 0 {
		out = append(out, gain{"not packed yet: it takes its full size until then", st.Waiting.Bytes,
			"ckptfs sync " + s.root()})
	}
	return out
}
