package pages

import (
	"slices"
	"strings"
)

// covered names charts of a page in which the pin of a best value lies over the legend, or leaves the chart.
const covered = `[...document.querySelectorAll("figure.chart.lines[data-drawn]")].filter((f) => {
	const c = echarts.getInstanceByDom(f.querySelector(".canvas")), o = c.getOption();
	const view = c.getViewOfComponentModel(c.getModel().getComponent("legend"));
	const box = view.group.getBoundingRect().clone();
	box.applyTransform(view.group.transform || [1, 0, 0, 1, 0, 0]);
	return o.series.some((s, i) => {
		const best = s.markPoint && s.markPoint.data && s.markPoint.data[0];
		if (!best) return false;
		const [, y] = c.convertToPixel({ seriesIndex: i }, best.coord), top = y - s.markPoint.symbolSize;
		return top < 0 || o.legend[0].show && top < box.y + box.height && y > box.y;
	});
}).map((f) => f.textContent.slice(0, 60)).join("; ")`

// A metric is chosen on the page of runs that are compared; no pin covers which curve is whose. At a phone's
// width the best value of a run is beside its name.
func (b *tab) compared() {
	b.visit("/compare?run=base&run=tune-all&run=tune-head")
	if s := b.text(covered); s != "" {
		b.t.Errorf("a pin covers the legend: %s", s)
	}
	charts := `[...document.querySelectorAll("figure.chart.lines figcaption")].map((c) => c.textContent)`
	if len(eval[[]string](b, charts)) < 2 {
		b.t.Fatal("one metric alone is drawn")
	}
	eval[int](b, `document.querySelectorAll("input[name=metric]").forEach((c) => c.checked = c.value === "acc"), 0`)
	b.click("Draw")
	if got := eval[[]string](b, charts); !slices.Equal(got, []string{"acc over the steps"}) {
		b.t.Errorf("%q are drawn", got)
	}
	if s := b.text(covered); s != "" || !strings.Contains(b.where(), "run=tune-head") {
		b.t.Errorf("%s: a pin covers the legend: %s", b.where(), s)
	}
	b.sound()
	b.width(360, 740)
	b.visit("/runs")
	if right := eval[int](b, `Math.ceil(document.querySelector("table.runs tbody tr").cells[3].getBoundingClientRect().right)`); right > 360 {
		b.t.Errorf("the best value of a run ends at %d of 360 pixels", right)
	}
	b.width(1000, 900)
}
