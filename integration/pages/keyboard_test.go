package pages

import (
	"fmt"
	"strings"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"ckptfs/integration/daemon"
)

// tabTo presses Tab until an element has the focus for which a condition on e holds, and reports whether one
// came.
func (b *tab) tabTo(condition string) bool {
	b.t.Helper()
	eval[int](b, `document.activeElement.blur(); scrollTo(0, 0); 0`)
	for range 400 {
		b.do(chromedp.KeyEvent(kb.Tab))
		if eval[bool](b, `((e) => e !== document.body && !!(`+condition+`))(document.activeElement)`) {
			return true
		}
	}
	return false
}

// unfolded is how many rows the table of the chart has that the focus is in, and its first link.
const unfolded = `(() => {
	const d = document.activeElement.closest("details");
	const a = d.querySelector("td a");
	return { rows: d.querySelectorAll("tbody tr").length, link: a ? a.getAttribute("href") : "" };
})()`

// tables holds that what each kind of chart shows is there as a table, which the keyboard unfolds and leads
// through, with the links that its points have.
func (b *tab) tables(program string) {
	for _, c := range []struct {
		page, kind, link string
		rows             int
	}{
		{"/run?run=base", "lines", "/path?path=runs%2Fbase%2F", 8},
		{"/run?run=base", "heat", "/diff?a=runs%2Fbase%2F", 2},
		{"/", "bars", "", 3},
		{"/lineage", "graph", "/path?path=runs%2F", 5},
		{"/tensor?file=runs/tune-head/500/model.pt&name=layers.3.linear2.weight", "histogram", "", 80},
	} {
		b.visit(c.page)
		if !b.tabTo(fmt.Sprintf(`e.matches("summary") && e.closest("figure.chart.%s")`, c.kind)) {
			b.t.Errorf("%s: no table of a chart of type %s is reached", c.page, c.kind)
			continue
		}
		b.do(chromedp.KeyEvent(kb.Enter))
		var got struct {
			Rows int
			Link string
		}
		err := daemon.Until("", func() bool {
			got.Rows, got.Link = eval[int](b, unfolded+".rows"), b.text(unfolded+".link")
			return got.Rows > 0
		})
		if err != nil || got.Rows < c.rows || !strings.HasPrefix(got.Link, c.link) ||
			(got.Link == "") != (c.link == "") {
			b.t.Errorf("%s: the table of a chart of type %s has %+v", c.page, c.kind, got)
		}
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.accessible(program, scheme+", a table unfolded")
		}
		b.scheme("light")
		for range 2 { // the table, which may be scrolled, and what comes next
			b.do(chromedp.KeyEvent(kb.Tab))
			if s := b.text(focused + ".unseen"); s != "" {
				b.t.Errorf("%s: what has the focus in the table of a chart of type %s: %s", c.page, c.kind, s)
			}
		}
		b.sound()
	}
}
