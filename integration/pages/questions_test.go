package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// Which run is best, and why: the table of runs by its column Best, and the run's curve.
func (b *tab) best(m *mounttest.Mount) {
	best, least := "", 0.0
	for _, r := range at(decoded(m, "runs", "--json", m.Dir), "runs").([]any) {
		run := at(r, "run").(string)
		v := number(b.t, decoded(m, "best", "--json", m.Path("runs", run), "val_loss"), "value")
		if best == "" || v < least {
			best, least = run, v
		}
	}
	b.visit("/")
	b.click("Runs")
	b.click("Best")
	row := b.rows("Runs")[0]
	if strings.Fields(row[1])[0] != best || row[3] != fmt.Sprintf("%.4g", least) {
		b.t.Errorf("%q is first, and %s is best: %g", row, best, least)
	}
	b.click(best)
	metrics := b.rows("Metrics")
	if i := slices.IndexFunc(metrics, func(r []string) bool { return r[0] == "val_loss" }); i < 0 ||
		metrics[i][1] != fmt.Sprintf("%.4g", least) {
		b.t.Errorf("%q", metrics)
	}
	if n := eval[int](b, `document.querySelectorAll("figure.chart.lines[data-drawn]").length`); n < 3 {
		b.t.Errorf("%d curves are drawn", n)
	}
	b.sound()
}

// What changed between two steps: the run, and the link of a step.
func (b *tab) changed(m *mounttest.Mount) {
	b.visit("/")
	b.click("Runs")
	b.click("tune-head")
	// A cell of the heat map leads to what it is made from.
	cell := eval[[]float64](b, `(() => {
		const box = document.querySelector(".chart.heat .canvas");
		box.scrollIntoView({ block: "center" });
		const at = echarts.getInstanceByDom(box).convertToPixel({ seriesIndex: 0 }, [0, 0]), r = box.getBoundingClientRect();
		return [r.left + at[0], r.top + at[1]];
	})()`)
	b.do(chromedp.MouseClickXY(cell[0], cell[1]))
	err := daemon.Until("", func() bool {
		to, err := try[string](b, "location.pathname + location.search")
		return err == nil && to == "/diff?a=runs%2Ftune-head%2F100&b=runs%2Ftune-head%2F200"
	})
	if err != nil {
		b.t.Errorf("a cell of the heat map leads to %s", b.where())
	}
	b.ready()
	b.visit("/run?run=tune-head")
	b.click("since the step before") // of the latest
	want := map[string]bool{}
	d := decoded(m, "diff", "--json", m.Path("runs/tune-head/400"), m.Path("runs/tune-head/500"))
	for _, c := range at(d, "changed").([]any) {
		want[at(c, "name").(string)] = true
	}
	rows := b.rows("Changed")
	for _, r := range rows {
		if !want[r[0]] {
			b.t.Errorf("%s did not change", r[0])
		}
	}
	if len(rows) != len(want) || len(want) == 0 {
		b.t.Errorf("%d tensors of %d changed", len(rows), len(want))
	}
	b.sound()
}

// What deleting a run gives back: the table of all, and the run's own page.
func (b *tab) removal(m *mounttest.Mount) {
	d := decoded(m, "du", "--json", m.Path("runs/tune-head"))
	want := bytesText(number(b.t, d, "alone_bytes"))
	b.visit("/")
	b.click("What removing runs would give back")
	rows := b.rows("What each takes")
	i := slices.IndexFunc(rows, func(r []string) bool { return r[0] == "tune-head" })
	if i < 0 || rows[i][4] != want {
		b.t.Errorf("%s are given back: %q", want, rows)
	}
	b.visit("/")
	b.click("Runs")
	b.click("tune-head")
	said := b.text(`document.getElementById("main").textContent`)
	if !strings.Contains(said, want+" with the next prune") {
		b.t.Errorf("the page of the run does not say that %s are given back", want)
	}
	b.sound()
}

// Is anything wrong: the first page says so, without a click.
func TestWrong(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Must(os.MkdirAll(m.Path("runs/a/1"), 0o755))
	m.Write("runs/a/1/model.bin", mounttest.Noise(1, mib))
	m.Sync()
	m.EvictAll()
	b := open(t, serve(t, m.Dir))
	b.ready()
	b.sound()
	health := `document.querySelector(".health").textContent`
	// The disk is the machine's.
	if said := b.text(health); !strings.Contains(said, "Nothing is known to be wrong") &&
		!strings.Contains(said, "the disk is nearly full") {
		t.Errorf("a new store: %s", said)
	}
	segments, err := filepath.Glob(filepath.Join(m.Store, "segments", "*"))
	m.Must(err)
	for _, s := range segments {
		f, err := os.OpenFile(s, os.O_RDWR, 0)
		m.Must(err)
		_, err = f.WriteAt(mounttest.Noise(2, 1000), 300_000)
		m.Must(err)
		m.Must(f.Close())
	}
	if said, code := m.RunOutcome("check", "--read-data", m.Dir); code == 0 {
		t.Fatalf("ckptfs check finds no damage in %q: %s", segments, said)
	}
	b.visit("/")
	if said := b.text(health); !strings.Contains(said, "Something is wrong") || !strings.Contains(said, "ckptfs check") {
		t.Errorf("a damaged store: %s", said)
	}
	b.accessible(axe(t), "damaged")
}
