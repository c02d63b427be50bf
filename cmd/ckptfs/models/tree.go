package models

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/cmd/ckptfs/text/plot"
	"ckptfs/fs/control"
	"ckptfs/index/runs"
)

// branch is a run, and where it comes from.
type branch struct {
	control.Run
	// From is the step of another run that its first step comes from: runs/a/3. The run may be gone.
	From string `json:"from,omitempty"`
	// MergedFrom are the steps of other runs that its first step was merged from.
	MergedFrom []string `json:"merged_from,omitempty"`
	// LastMetrics are those of the last step that has any and is not torn.
	LastMetrics map[string]control.Number `json:"last_metrics"`

	below []*branch
}

// showTree prints runs by what each comes from.
func showTree(ctx context.Context, s Shell, c *control.Client, l *control.RunList) error {
	all := make([]*branch, len(l.Runs))
	update, done := s.Progress("reading lineages")
	defer done()
	for i := range l.Runs {
		if update != nil {
			update(control.Progress{DoneFiles: i, TotalFiles: len(l.Runs)})
		}
		b, err := grown(ctx, c, l.Runs[i])
		if err != nil {
			return err
		}
		all[i] = b
	}
	done()
	v := struct {
		Runs []*branch `json:"runs"`
	}{all}
	return s.Show(v, func(w io.Writer) { printTree(w, all) })
}

// grown asks for a run's steps, and where they come from.
func grown(ctx context.Context, c *control.Client, r control.Run) (*branch, error) {
	b := &branch{Run: r, LastMetrics: map[string]control.Number{}}
	at := runs.Dir + "/" + r.Run
	steps, err := c.Steps(ctx, at)
	if unknown(err) {
		return b, nil // it was removed just now
	}
	if err != nil {
		return nil, err
	}
	for i := range steps.Steps {
		if s := &steps.Steps[i]; len(s.Metrics) > 0 && s.State != control.StepTorn {
			b.LastMetrics = s.Metrics
		}
	}
	// The first step, or as far as it is not known yet the next ones: they come from it.
	for i := range min(len(steps.Steps), 3) {
		models, err := c.Lineage(ctx, at+"/"+steps.Steps[i].Step)
		if unknown(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		b.comes(models)
		break
	}
	return b, nil
}

// unknown reports whether an error says that there is no such run, or that no model of a step is known.
func unknown(err error) bool {
	return err != nil && control.AsError(err).Code == control.CodeNotFound
}

// comes notes the nearest step of another run that one of the models comes from.
func (b *branch) comes(l *control.Lineage) {
	for i := range l.Models {
		m := &l.Models[i]
		for j := range m.Chain {
			if step, other := b.other(m.Chain[j].Path); other {
				if b.From == "" {
					b.From = step
				}
				break
			}
		}
		for j := range m.Merged {
			if step, other := b.other(m.Merged[j].Path); other && !slices.Contains(b.MergedFrom, step) {
				b.MergedFrom = append(b.MergedFrom, step)
			}
		}
	}
	if b.From == "" && len(b.MergedFrom) > 0 {
		b.From = b.MergedFrom[0]
	}
}

// other is the step that a path lies in, and whether that is one of another run.
func (b *branch) other(path string) (step string, is bool) {
	parts := strings.SplitN(path, "/", 4)
	if len(parts) < 3 || parts[0] != runs.Dir || parts[1] == b.Run.Run {
		return "", false
	}
	return strings.Join(parts[:3], "/"), true
}

// trunk is the run that b comes from; nil if it is none of these.
func (b *branch) trunk(all []*branch) *branch {
	parts := strings.Split(b.From, "/")
	if len(parts) < 2 {
		return nil
	}
	i := slices.IndexFunc(all, func(o *branch) bool { return o.Run.Run == parts[1] })
	if i < 0 {
		return nil
	}
	return all[i]
}

// planted hangs each run below the one that it comes from, and returns the others. Of runs that come from
// each other, since one was removed and made again, the last is among these.
func planted(all []*branch) (roots []*branch) {
	up := map[*branch]*branch{}
	for _, b := range all {
		t := b.trunk(all)
		for o := t; o != nil; o = up[o] {
			if o == b {
				t = nil
				break
			}
		}
		if t == nil {
			roots = append(roots, b)
			continue
		}
		up[b] = t
		t.below = append(t.below, b)
	}
	return roots
}

func printTree(w io.Writer, all []*branch) {
	var rows [][]string
	paint := text.Paints(w)
	var add func(b *branch, before, more string)
	add = func(b *branch, before, more string) {
		rows = append(rows, []string{before + text.Printable(b.Run.Run), text.Printable(b.origin()),
			humanize.Comma(int64(b.Steps)), incomplete(&b.Run, paint), text.Bytes(b.LogicalBytes),
			text.Printable(lastMetrics(b.LastMetrics))})
		for i, c := range b.below {
			if i < len(b.below)-1 {
				add(c, more+"├─ ", more+"│  ")
			} else {
				add(c, more+"└─ ", more+"   ")
			}
		}
	}
	for _, b := range planted(all) {
		add(b, "", "")
	}
	text.Table(w, []string{"RUN", "FROM", ">STEPS", "NOT COMPLETE", ">SIZE", "LAST METRICS"}, rows)
}

// origin says which steps a run comes from.
func (b *branch) origin() string {
	from := strings.TrimPrefix(b.From, runs.Dir+"/")
	for _, m := range b.MergedFrom {
		if m != b.From {
			from += " + " + strings.TrimPrefix(m, runs.Dir+"/")
		}
	}
	return from
}

// shownMetrics is how many metrics a row has.
const shownMetrics = 3

func lastMetrics(m map[string]control.Number) string {
	var parts []string
	names := slices.Sorted(maps.Keys(m))
	for _, name := range names[:min(shownMetrics, len(names))] {
		parts = append(parts, name+"="+plot.Number(float64(m[name])))
	}
	if n := len(names) - shownMetrics; n > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(parts, " ")
}
