package pages

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// family is a mount with what programs/kin.py writes, each run packed before the next comes. The mix was
// packed without recipes, and is stored as one since: no parent of it is known, and it is computed all the
// same.
func family(t *testing.T) *mounttest.Mount {
	t.Helper()
	m := mounttest.New(t, "--no-recipes")
	from := t.TempDir()
	mounttest.RunPython(t, "kin.py", from)
	save := func(runs ...string) {
		for _, run := range runs {
			m.Must(os.CopyFS(m.Path("runs", run), os.DirFS(filepath.Join(from, run))))
			m.Sync()
		}
	}
	save("kin-base", "kin-one", "kin-two", "kin-mix")
	m.Flags = nil
	m.Remount()
	m.Run("compact", m.Dir)
	save("kin-chat", "kin-code", "kin-merge", "kin-quants")
	return m
}

const (
	kinBase, kinChat, kinCode = "runs/kin-base/1/model.safetensors", "runs/kin-chat/1/model.safetensors",
		"runs/kin-code/1/model.safetensors"
	kinMerge = "runs/kin-merge/1/model.safetensors"
	kinOne   = "runs/kin-one/1/model.safetensors"
	kinTwo   = "runs/kin-two/1/model.safetensors"
	kinMix   = "runs/kin-mix/1/model.safetensors"
	kinGGUF  = "runs/kin-quants/1/model.Q8_0.gguf"
	kinFP8   = "runs/kin-quants/1/model.fp8.safetensors"
)

// What files are computed from is on the pages, though nobody declared it: the edges of the graph, how each
// tensor is stored, where a file and a step come from; and that the base was removed.
func TestComputed(t *testing.T) {
	t.Parallel()
	m := family(t)
	b := open(t, serve(t, m.Dir))
	b.ready()
	b.scheme("light")
	t.Run("graph", func(t *testing.T) { b.t = t; b.edges(m) })
	t.Run("tree", func(t *testing.T) { b.t = t; b.tree(m) })
	t.Run("ancestry", func(t *testing.T) { b.t = t; b.ancestry() })
	t.Run("stats", func(t *testing.T) { b.t = t; b.recipes(m) })
	program := axe(t)
	all := []string{"/lineage", "/path?path=runs/kin-merge/1", "/path?path=runs/kin-quants/1",
		"/path?path=" + kinFP8, "/lineage?path=runs"}
	for _, p := range all {
		b.width(1000, 900)
		b.visit(p)
		b.accessible(program, "light")
		b.scheme("dark")
		b.accessible(program, "dark")
		b.scheme("light")
		b.keyboard()
		b.width(360, 740)
		b.visit(p)
		if w := eval[int](b, "document.documentElement.scrollWidth"); w > 360 {
			t.Errorf("%s: a window of 360 pixels has a page of %d: %s", p, w, b.text(wide))
		}
		b.accessible(program, "phone")
		b.sound()
	}
	b.width(1000, 900)
	m.Must(os.RemoveAll(m.Path("runs/kin-base")))
	m.Sync()
	t.Run("removed", func(t *testing.T) { b.t = t; b.removed() })
	b.t = t
}

// edge is one of the graph as it is drawn: the steps at its ends, and what it says.
type edge struct{ From, To, Label, How, What string }

// drawn are the edges that the chart has.
const drawn = `(() => {
	const s = echarts.getInstanceByDom(document.querySelector(".chart.graph .canvas")).getOption().series[0];
	const path = (i) => s.data[Number(i)].path;
	return s.edges.map((e) => ({ from: path(e.source), to: path(e.target), how: e.how, what: e.what || "",
		label: e.label.show ? e.label.formatter() : "" }));
})()`

// edges holds that the graph and the table below it say what was merged and quantised, as lineage does.
func (b *tab) edges(m *mounttest.Mount) {
	b.visit("/lineage")
	const merge, mix = "merge 0.7 kin-chat/1 + 0.3 kin-code/1", "merge 0.6 kin-one/1 + 0.4 kin-two/1"
	const quants = "Q8_0 of kin-base/1, F8_E4M3 of kin-base/1"
	want := []edge{
		{"runs/kin-base/1", "runs/kin-quants/1", "Q8_0, F8_E4M3", "reproduced", quants},
		{"runs/kin-chat/1", "runs/kin-merge/1", "0.7", "reproduced", merge},
		{"runs/kin-code/1", "runs/kin-merge/1", "0.3", "merged", merge},
		{"runs/kin-one/1", "runs/kin-mix/1", "0.6", "reproduced", mix},
		{"runs/kin-two/1", "runs/kin-mix/1", "0.4", "reproduced", mix},
	}
	got := eval[[]edge](b, drawn)
	slices.SortFunc(got, func(a, b edge) int { return strings.Compare(a.From+" "+a.To, b.From+" "+b.To) })
	if !reflect.DeepEqual(got, want) {
		b.t.Errorf("the graph has the edges %+v", got)
	}
	var rows [][]string
	for _, e := range want {
		rows = append(rows, []string{e.From, e.To, e.What, "reproduced"})
	}
	listed := b.rows("Steps that come from elsewhere")
	slices.SortFunc(listed, slices.Compare[[]string])
	if !reflect.DeepEqual(listed, rows) {
		b.t.Errorf("the table has %q", listed)
	}
	said := m.Run("lineage", m.Path(kinMix))
	if !strings.Contains(said, "merge 0.6 "+kinOne+" + 0.4 "+kinTwo) || strings.Contains(said, "parent:") {
		b.t.Errorf("ckptfs lineage says %s", said)
	}
	// A step leads to its page.
	at := eval[[]float64](b, `(() => {
		const box = document.querySelector(".chart.graph .canvas"), c = echarts.getInstanceByDom(box);
		box.scrollIntoView({ block: "center" });
		const s = c.getModel().getSeriesByIndex(0), i = c.getOption().series[0].data.findIndex((d) => d.path === "runs/kin-merge/1");
		const p = s.coordinateSystem.dataToPoint(s.getData().getItemLayout(i)), r = box.getBoundingClientRect();
		return [r.left + p[0], r.top + p[1]];
	})()`)
	b.do(chromedp.MouseClickXY(at[0], at[1]))
	if err := daemon.Until("", func() bool {
		to, err := try[string](b, "location.pathname + location.search")
		return err == nil && to == "/path?path=runs%2Fkin-merge%2F1"
	}); err != nil {
		b.t.Errorf("a step of the graph leads to %s", b.where())
	}
	b.ready()
	b.sound()
}

// leaf is a tensor of the tree of a file's page.
type leaf struct {
	Name, Said string
	Links      []string // of what it says
}

// leaves are the tensors of the tree.
func (b *tab) leaves() map[string]leaf {
	b.t.Helper()
	all := map[string]leaf{}
	for _, l := range eval[[]leaf](b, `[...document.querySelectorAll(".tree li")].filter((l) => l.querySelector(":scope > .type")).map((l) => ({
		name: new URL(l.querySelector("a").href).searchParams.get("name"), said: l.querySelector(".sub").textContent,
		links: [...l.querySelectorAll(".sub a")].map((a) => a.getAttribute("href")) }))`) {
		all[l.Name] = l
	}
	return all
}

// tree holds that the tree of a file says of each tensor what show does, and leads to what it is made of.
func (b *tab) tree(m *mounttest.Mount) {
	for file, want := range map[string]string{
		kinMerge: ", stored as 0.7 " + kinChat + " + 0.3 " + kinCode,
		kinMix:   ", stored as 0.6 " + kinOne + " + 0.4 " + kinTwo,
		kinFP8:   ", stored as F8_E4M3 of " + kinBase,
		kinGGUF:  ", stored as Q8_0 of " + kinBase + ":",
	} {
		b.visit("/path?path=" + file)
		leaves := b.leaves()
		stored := 0
		for _, x := range at(decoded(m, "show", "--json", m.Path(file)), "tensors").([]any) {
			name := at(x, "name").(string)
			var links []string
			if at(x, "stored_as") != nil {
				stored++
				for _, base := range at(x, "stored_as", "bases").([]any) {
					tensor := at(base, "tensor").(string)
					of := url.Values{"file": {at(base, "path").(string)}, "name": {tensor}}
					links = append(links, "/tensor?"+of.Encode())
				}
			}
			l, says := leaves[name], ""
			if len(links) > 0 {
				if says = want; strings.HasSuffix(name, "_scale") {
					says = strings.Replace(want, "F8_E4M3", "scales", 1) + ":"
				}
				if strings.HasSuffix(says, ":") {
					says += at(x, "stored_as", "bases", "0", "tensor").(string)
				}
			}
			if !strings.HasSuffix(l.Said, says) || strings.Contains(l.Said, "stored as") != (says != "") {
				b.t.Errorf("%s: %s: %q, not %q", file, name, l.Said, says)
			}
			slices.Sort(links)
			slices.Sort(l.Links)
			if !slices.Equal(links, l.Links) {
				b.t.Errorf("%s: %s leads to %q, not %q", file, name, l.Links, links)
			}
		}
		if n := map[string]int{kinFP8: 14}[file]; stored != cmp.Or(n, 7) { // each has its scales
			b.t.Errorf("%s: %d tensors are stored with the help of others", file, stored)
		}
		b.sound()
	}
	b.visit("/tensor?" + url.Values{"file": {kinMerge}, "name": {"model.embed_tokens.weight"}}.Encode())
	said := b.text(`document.getElementById("main").textContent`)
	if !strings.Contains(said, "Stored as 0.7 "+kinChat+" + 0.3 "+kinCode+": ") {
		b.t.Errorf("the page of a tensor does not say how it is stored: %s", said)
	}
	b.sound()
}

// chain is what the table of a model's ancestors says of each: the path, and how its parent is known.
func (b *tab) chain(model string) (all []string) {
	b.t.Helper()
	for _, r := range b.rows("Ancestors of " + model) {
		all = append(all, r[0]+": "+r[1])
	}
	return all
}

// ancestry holds what the pages of files and steps say of where they come from.
func (b *tab) ancestry() {
	const none = ": no parent is known"
	for at, want := range map[string]struct {
		model   string
		chain   []string
		follows string
	}{
		kinMerge: {kinMerge, []string{kinMerge + ": reproduced", kinChat + none},
			kinMerge + " is reproduced: merge 0.7 " + kinChat + " + 0.3 " + kinCode + ". 100 % of its tensors' bytes follow"},
		"runs/kin-merge/1": {kinMerge, []string{kinMerge + ": reproduced", kinChat + none},
			"Merged from " + kinCode + "."},
		kinMix: {kinMix, []string{kinMix + none},
			kinMix + " is reproduced: merge 0.6 " + kinOne + " + 0.4 " + kinTwo + ". 100 % of its"},
		kinGGUF: {kinGGUF, []string{kinGGUF + ": reproduced", kinBase + none},
			kinGGUF + " is reproduced: Q8_0 of " + kinBase + ". 100 % of its"},
		"runs/kin-quants/1": {kinFP8, []string{kinFP8 + ": reproduced", kinBase + none},
			kinFP8 + " is reproduced: F8_E4M3 of " + kinBase + ". 100 %"},
	} {
		for _, page := range []string{"/path?path=", "/lineage?path="} {
			b.visit(page + at)
			if got := b.chain(want.model); !slices.Equal(got, want.chain) {
				b.t.Errorf("%s%s: %s comes from %q", page, at, want.model, got)
			}
			said := b.text(`document.getElementById("main").textContent`)
			if !strings.Contains(said, want.follows) {
				b.t.Errorf("%s%s does not say %q: %s", page, at, want.follows, said)
			}
			b.sound()
		}
	}
	// A step of several checkpoints leads to each of them.
	b.visit("/path?path=runs/kin-quants/1")
	links := eval[[]string](b, `[...document.querySelectorAll(".part")].filter((p) => p.textContent.includes("Each of its checkpoints"))
		.flatMap((p) => [...p.querySelectorAll("a")].map((a) => new URL(a.href).searchParams.get("path")))`)
	if !slices.Equal(links, []string{kinGGUF, kinFP8}) {
		b.t.Errorf("the step leads to %q", links)
	}
}

// recipes holds that the first page and stats say what recipes save.
func (b *tab) recipes(m *mounttest.Mount) {
	b.visit("/")
	rows := b.rows("Savings by kind")
	i := slices.IndexFunc(rows, func(r []string) bool { return r[0] == "recipe" })
	var want []string
	for _, e := range at(decoded(m, "stats", "--json", m.Dir), "encodings").([]any) {
		if at(e, "codec") == "recipe" {
			want = []string{"recipe", bytesText(number(b.t, e, "raw_bytes")),
				bytesText(number(b.t, e, "bytes"))}
		}
	}
	if i < 0 || want == nil || !slices.Equal(rows[i][:3], want) {
		b.t.Fatalf("%q of %q", want, rows)
	}
	line := fmt.Sprintf("of %s, computed from others by recipes of %s", want[1], want[2])
	if said := m.Run("stats", m.Dir); !strings.Contains(said, line) {
		b.t.Errorf("ckptfs stats does not say %q: %s", want, said)
	}
	b.sound()
}

// removed holds what the pages say of a base that is gone, and that they lead to it no more.
func (b *tab) removed() {
	const gone = "a removed file"
	b.visit("/path?path=" + kinFP8)
	chain := []string{kinFP8 + ": reproduced", kinBase + " removed: no parent is known"}
	if got := b.chain(kinFP8); !slices.Equal(got, chain) {
		b.t.Errorf("%s comes from %q", kinFP8, got)
	}
	l := b.leaves()["model.embed_tokens.weight"]
	if !strings.HasSuffix(l.Said, ", stored as F8_E4M3 of "+gone) || len(l.Links) > 0 {
		b.t.Errorf("%+v", l)
	}
	b.sound()
	b.visit("/lineage")
	if err := daemon.Until("", func() bool { // the graph is made again after a while
		b.visit("/lineage")
		return slices.ContainsFunc(b.rows("Steps that come from elsewhere"), func(r []string) bool {
			return r[0] == "runs/kin-base/1 removed"
		})
	}); err != nil {
		b.t.Errorf("%q", b.rows("Steps that come from elsewhere"))
	}
	if links := eval[[]string](b, `[...document.querySelectorAll("main a")].map((a) => a.href).filter((h) => h.includes("kin-base"))`); len(links) > 0 {
		b.t.Errorf("the page leads to what is gone: %q", links)
	}
	b.sound()
}
