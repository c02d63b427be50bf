package pages

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/dustin/go-humanize"

	"ckptfs/integration/mounttest"
)

// passing are the keys of what the next moment changes.
var passing = []string{"free_bytes", "uptime_seconds", "last_prune", "opens", "counters", "memory",
	"open_files", "started", "rss_bytes", "now", "segment_bytes", "dead_bytes", "at"}

// sights are the pages, each with the command whose --json its JSON is, "" for none, and below which key.
var sights = []struct {
	name, path string
	json       map[string][]string // key to command
}{
	{"store", "/", map[string][]string{"stats": {"stats", "."}, "status": {"status", "."}}},
	{"runs", "/runs", map[string][]string{"": {"runs", "."}}},
	{"run", "/run?run=base", map[string][]string{"": {"log", "runs/base"}}},
	{"long run", "/run?run=long", map[string][]string{"": {"log", "runs/long"}}},
	{"torn", "/run?run=tune-all", map[string][]string{"": {"log", "runs/tune-all"}}},
	{"compare", "/compare?run=base&run=tune-all&run=tune-head", map[string][]string{"0": {"log", "runs/base"},
		"2": {"log", "runs/tune-head"}}},
	{"files", "/path?path=", map[string][]string{"ls": {"ls", "."}}},
	{"step", "/path?path=runs/tune-head/500", map[string][]string{"ls": {"ls", "runs/tune-head/500"},
		"show": {"show", "runs/tune-head/500"}, "lineage": {"lineage", "runs/tune-head/500"},
		"du": {"du", "runs/tune-head/500"}}},
	{"file", "/path?path=runs/tune-head/500/model.pt", map[string][]string{
		"show":    {"show", "runs/tune-head/500/model.pt"},
		"lineage": {"lineage", "runs/tune-head/500/model.pt"}, "du": {"du", "runs/tune-head/500/model.pt"}}},
	{"tensor", "/tensor?file=runs/tune-head/500/model.pt&name=layers.3.linear2.weight", nil},
	{"diff", "/diff?a=runs/tune-head/400&b=runs/tune-head/500", map[string][]string{
		"": {"diff", "--sample", "1MiB", "runs/tune-head/400", "runs/tune-head/500"}}},
	{"lineage", "/lineage", map[string][]string{"": {"lineage", "runs"}}},
	{"ancestry", "/lineage?path=runs/merged/1", map[string][]string{"": {"lineage", "runs/merged/1"}}},
	{"space", "/space", map[string][]string{"": {"du", "runs"}}},
	{"users", "/space?by=user", map[string][]string{"": {"du", "--by-user", "runs"}}},
}

// Each page of a store of real runs loads, draws and says what the commands say, shuts nobody out, and works
// by the keyboard and at a phone's width.
func TestPages(t *testing.T) {
	t.Parallel()
	m := trained(t)
	b := open(t, serve(t, m.Dir))
	program := axe(t)
	b.ready()
	b.scheme("light")
	for _, s := range sights {
		t.Run(s.name, func(t *testing.T) {
			b.t = t
			b.width(1000, 900)
			b.visit(s.path)
			b.sound()
			if s.json != nil {
				b.sameJSON(m, s.json)
			}
			b.accessible(program, "light")
			b.scheme("dark")
			b.accessible(program, "dark")
			b.scheme("light")
			b.keyboard()
			b.width(360, 740)
			b.visit(s.path)
			if w := eval[int](b, "document.documentElement.scrollWidth"); w > 360 {
				t.Errorf("%s: a window of 360 pixels has a page of %d: %s", s.path, w, b.text(wide))
			}
			b.accessible(program, "phone")
		})
	}
	b.t = t
	b.width(1000, 900)
	t.Run("numbers", func(t *testing.T) { b.t = t; b.numbers(m) })
	t.Run("graph", func(t *testing.T) { b.t = t; b.graph(m) })
	t.Run("best", func(t *testing.T) { b.t = t; b.best(m) })
	t.Run("changed", func(t *testing.T) { b.t = t; b.changed(m) })
	t.Run("removal", func(t *testing.T) { b.t = t; b.removal(m) })
	t.Run("compared", func(t *testing.T) { b.t = t; b.compared() })
	t.Run("tables", func(t *testing.T) { b.t = t; b.tables(program) })
	t.Run("pictures", func(t *testing.T) { b.t = t; b.pictures(m) })
	b.t = t
}

// wide names what is wider than the page.
const wide = `[...document.querySelectorAll("*")].filter((e) => e.getBoundingClientRect().right > 361 && !e.closest(".scroll, pre"))
	.map((e) => e.outerHTML.slice(0, 100)).slice(0, 3).join("; ")`

// json is what the link to the page's JSON gives.
func (b *tab) json() (all any) {
	b.t.Helper()
	got := b.text(`fetch([...document.querySelectorAll("a")].find((a) => a.textContent === "JSON").href).then((r) => r.text())`)
	if err := json.Unmarshal([]byte(got), &all); err != nil {
		b.t.Fatal(err)
	}
	return all
}

// graph holds that the graph of all runs has each of them, and edges that the commands tell of.
func (b *tab) graph(m *mounttest.Mount) {
	b.visit("/lineage")
	var g any
	drawn := b.text(`document.querySelector(".chart.graph script").textContent`)
	if err := json.Unmarshal([]byte(drawn), &g); err != nil {
		b.t.Fatal(err)
	}
	var want, have []string
	for _, r := range at(decoded(m, "runs", "--json", m.Dir), "runs").([]any) {
		want = append(want, at(r, "run").(string))
	}
	for _, r := range at(g, "runs").([]any) {
		have = append(have, r.(string))
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		b.t.Errorf("the graph has the runs %q, not %q", have, want)
	}
	path := func(edge any, end string) string {
		return at(g, "nodes", fmt.Sprint(number(b.t, edge, end)), "path").(string) + "/"
	}
	between := 0
	for _, e := range at(g, "edges").([]any) {
		if at(e, "how") == "step" {
			continue
		}
		between++
		from, to := path(e, "from"), path(e, "to")
		l := decoded(m, "lineage", "--json", m.Path(to))
		parents, _ := at(l, "models", "0", "merged").([]any)
		parents = append(parents, at(l, "models", "0", "chain", "1"))
		if !slices.ContainsFunc(parents, func(p any) bool {
			s, _ := at(p, "path").(string)
			return strings.HasPrefix(s, from)
		}) {
			b.t.Errorf("%s comes from %s, and ckptfs lineage says %v", to, from, parents)
		}
	}
	if between < 2 {
		b.t.Errorf("%d edges between runs", between)
	}
}

// sameJSON holds that the link to the page's JSON gives what commands print.
func (b *tab) sameJSON(m *mounttest.Mount, commands map[string][]string) {
	b.t.Helper()
	all := b.json()
	for key, command := range commands {
		args := append([]string{}, command...)
		for i, a := range args {
			if a == "." {
				args[i] = m.Dir
			} else if strings.HasPrefix(a, "runs") && i > 0 {
				args[i] = m.Path(a)
			}
		}
		want := decoded(m, append(args, "--json")...)
		have := all
		if key != "" {
			have = at(all, key)
		}
		relative(want, m.Dir+"/")
		relative(have, m.Dir+"/")
		if w, h := without(want, passing...), without(have, passing...); !reflect.DeepEqual(w, h) {
			b.t.Errorf("%s: ckptfs %s --json says otherwise: %s", b.where(), strings.Join(command, " "), differ("", w, h))
		}
	}
}

// relative cuts a folder off the strings of a JSON document.
func relative(v any, dir string) {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			if s, ok := e.(string); ok {
				x[k] = strings.ReplaceAll(s, dir, "")
			}
			relative(e, dir)
		}
	case []any:
		for i, e := range x {
			if s, ok := e.(string); ok {
				x[i] = strings.ReplaceAll(s, dir, "")
			}
			relative(e, dir)
		}
	}
}

// differ tells where two JSON documents part.
func differ(where string, a, b any) string {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			break
		}
		for k := range y {
			if _, ok := x[k]; !ok {
				return fmt.Sprintf("%s.%s is there too: %v", where, k, y[k])
			}
		}
		for k := range x {
			if !reflect.DeepEqual(x[k], y[k]) {
				return differ(where+"."+k, x[k], y[k])
			}
		}
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		for i := range x {
			if !reflect.DeepEqual(x[i], y[i]) {
				return differ(fmt.Sprintf("%s[%d]", where, i), x[i], y[i])
			}
		}
	}
	return fmt.Sprintf("%s: %.300v, not %.300v", where, a, b)
}

// focused is what has the focus: a number of its own, its text, and why it cannot be seen that it has.
const focused = `(() => {
	const e = document.activeElement;
	if (!e || e === document.body) return { "no": -1, "text": "", "unseen": "" };
	window.all = window.all || [];
	if (!all.includes(e)) all.push(e);
	const s = getComputedStyle(e), r = e.getBoundingClientRect();
	let unseen = "";
	if (s.outlineStyle === "none" || parseFloat(s.outlineWidth) < 1) unseen = "it has no outline";
	if (r.bottom <= 0 || r.top >= innerHeight || r.right <= 0 || r.left >= innerWidth) unseen = "it is out of view";
	return { "no": all.indexOf(e), "text": (e.textContent || e.getAttribute("aria-label") || e.name || "").trim().slice(0, 60), "unseen": unseen };
})()`

// reachable is how many elements of the page can be used.
const reachable = `[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']")]
	.filter((e) => e.checkVisibility()).length`

// keyboard goes through the page by Tab: first past what all pages have, and each element shows that it has
// the focus.
func (b *tab) keyboard() {
	b.t.Helper()
	type focus struct {
		No           int
		Text, Unseen string
	}
	want := eval[int](b, `window.all = []; document.activeElement.blur(); scrollTo(0, 0); `+reachable)
	var order []string
	seen := map[int]bool{}
	for range min(want, 150) {
		b.do(chromedp.KeyEvent(kb.Tab))
		f := eval[focus](b, focused)
		if f.No < 0 {
			break
		}
		if f.Unseen != "" {
			b.t.Errorf("%s: %q has the focus, and %s", b.where(), f.Text, f.Unseen)
		}
		seen[f.No] = true
		order = append(order, f.Text)
	}
	if len(seen) < min(want, 150) {
		b.t.Errorf("%s: the keyboard reaches %d elements of %d: %q", b.where(), len(seen), want, order)
	}
	first := []string{"Skip to content", "Store", "Runs", "Files", "Lineage", "Space"}
	if len(order) < len(first) || !reflect.DeepEqual(order[:len(first)], first) {
		b.t.Errorf("%s: Tab goes to %q", b.where(), order[:min(len(order), len(first))])
	}
	eval[int](b, `document.activeElement.blur(); document.querySelector(".skip").focus(); 0`)
	b.do(chromedp.KeyEvent(kb.Enter))
	if id := b.text("document.activeElement.id"); id != "main" {
		b.t.Errorf("%s: the link to the content leads to %q", b.where(), id)
	}
}

// bytesText is a size as the pages have it.
func bytesText(n float64) string {
	if n < 1024 {
		return fmt.Sprintf("%.0f B", n)
	}
	return humanize.IBytesN(uint64(n), 3)
}

// tiles are the figures at the top of a page, by what they are.
func (b *tab) tiles() map[string]string {
	b.t.Helper()
	return eval[map[string]string](b, `Object.fromEntries([...document.querySelectorAll("main .tiles > div")].map((d) =>
		[d.querySelector("dt").textContent, d.querySelector("dd").textContent]))`)
}

// rows are the texts of a table's cells, of the first table with such a caption.
func (b *tab) rows(caption string) [][]string {
	b.t.Helper()
	return eval[[][]string](b, fmt.Sprintf(`[...([...document.querySelectorAll("table")]
		.find((t) => t.caption && t.caption.textContent.startsWith(%q)) || {tBodies: [{rows: []}]}).tBodies[0].rows].map((r) =>
		[...r.cells].map((c) => c.textContent.trim()))`, caption))
}

// numbers holds that figures on the pages are those of the commands.
func (b *tab) numbers(m *mounttest.Mount) {
	b.visit("/")
	stats := decoded(m, "stats", "--json", m.Dir)
	tiles := b.tiles()
	for what, key := range map[string]string{"Logical": "logical_bytes", "Unique": "unique_bytes",
		"Stored": "stored_bytes", "Local": "resident_bytes"} {
		if want := bytesText(number(b.t, stats, key)); tiles[what] != want {
			b.t.Errorf("%s of the store is %q, not %q", what, tiles[what], want)
		}
	}
	b.visit("/runs")
	runs := map[string][]string{}
	for _, row := range b.rows("Runs") {
		runs[strings.Fields(row[1])[0]] = row
	}
	for _, r := range at(decoded(m, "runs", "--json", m.Dir), "runs").([]any) {
		row := runs[at(r, "run").(string)]
		if row == nil || strings.ReplaceAll(row[5], ",", "") != fmt.Sprint(number(b.t, r, "steps")) ||
			row[6] != bytesText(number(b.t, r, "logical_bytes")) {
			b.t.Errorf("%q is not %v", row, r)
		}
	}
	if row := runs["tune-all"]; row == nil || !strings.Contains(row[1], "1 torn") {
		b.t.Errorf("%q has no torn step", row)
	}
	b.visit("/run?run=base")
	var size, fresh float64
	for _, s := range at(decoded(m, "log", "--json", m.Path("runs/base")), "steps").([]any) {
		size, fresh = size+number(b.t, s, "logical_bytes"), fresh+number(b.t, s, "new_bytes")
	}
	tiles = b.tiles()
	if tiles["Steps"] != "8" || tiles["Size"] != bytesText(size) || tiles["New"] != bytesText(fresh) {
		b.t.Errorf("%v: not %s, %s", tiles, bytesText(size), bytesText(fresh))
	}
	label := eval[string](b, `echarts.getInstanceByDom([...document.querySelectorAll(".chart.lines .canvas")].at(-1))
		.getOption().yAxis[0].axisLabel.formatter(600 * 1024)`)
	if label != "600 KiB" {
		b.t.Errorf("an axis calls 600 KiB %q", label)
	}
	b.visit("/space")
	space := map[string][]string{}
	for _, row := range b.rows("What each takes") {
		space[row[0]] = row
	}
	for _, p := range at(decoded(m, "du", "--json", m.Path("runs")), "parts").([]any) {
		name := at(p, "name").(string)
		row := space[name[strings.LastIndex(name, "/")+1:]]
		if row == nil || row[4] != bytesText(number(b.t, p, "alone_bytes")) ||
			row[3] != bytesText(number(b.t, p, "stored_bytes")) {
			b.t.Errorf("%q is not %v", row, p)
		}
	}
	b.visit("/tensor?" + url.Values{"file": {"runs/tune-head/500/model.pt"},
		"name": {"layers.3.linear2.weight"}}.Encode())
	shown := decoded(m, "show", "--json", "--stats", m.Path("runs/tune-head/500/model.pt"))
	for _, x := range at(shown, "tensors").([]any) {
		if at(x, "name") != "layers.3.linear2.weight" {
			continue
		}
		tiles := b.tiles()
		for what, key := range map[string]string{"Least": "min", "Greatest": "max", "Mean": "mean"} {
			if want := fmt.Sprintf("%.4g", number(b.t, x, "stats", key)); tiles[what] != want {
				b.t.Errorf("%s is %q, not %q", what, tiles[what], want)
			}
		}
		if said := b.json(); !reflect.DeepEqual(without(x, "stats"), said) {
			b.t.Errorf("the JSON of a tensor is another: %s", differ("", without(x, "stats"), said))
		}
		if tiles["Bytes"] != bytesText(number(b.t, x, "bytes")) || tiles["NaN"] != "0" {
			b.t.Errorf("%v", tiles)
		}
	}
	b.sound()
}
