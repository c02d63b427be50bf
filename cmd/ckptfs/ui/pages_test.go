package ui

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ckptfs/cmd/ckptfs/place"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
	"ckptfs/fs/volume"
)

const hostile = `<script>alert(1)</script>"'&{{.}}`

// weights are those of a step: a frozen tensor, one that moves, and one of a name that wants to be more.
func weights(t *testing.T, step int) []byte {
	t.Helper()
	const n = 20_000
	data := func(scale float64) (p []byte) {
		for i := range n {
			p = binary.LittleEndian.AppendUint32(p, math.Float32bits(float32(math.Sin(float64(i))*scale)))
		}
		return p
	}
	entries := []safetensors.Entry{{Name: hostile, DType: formats.F32, Shape: []int64{n}},
		{Name: "layers.0.w", DType: formats.F32, Shape: []int64{n}},
		{Name: "layers.1.w", DType: formats.F32, Shape: []int64{100, n / 100}}}
	head, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Join([][]byte{head, data(2), data(1), data(1 + float64(step)/10)}, nil)
}

// serveStore makes a store with two runs, and one whose metrics cannot be read, and the pages of it. more are
// files that are there, too, by path.
func serveStore(t *testing.T, write bool, more ...map[string][]byte) *server {
	t.Helper()
	store := filepath.Join(t.TempDir(), "store")
	v, err := volume.Open(volume.Options{Dir: store, Create: true, HotSize: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"a", "b " + hostile[:8]} {
		for step := 1; step <= 3; step++ {
			dir := filepath.Join(store, "tree/runs", run, fmt.Sprint(step))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			metrics := fmt.Sprintf(`{"val_loss": %g, "acc": %g}`, 1/float64(step), float64(step)/4)
			for name, p := range map[string][]byte{"model.safetensors": weights(t, step),
				"metrics.json": []byte(metrics)} {
				if err := os.WriteFile(filepath.Join(dir, name), p, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for step := range 7 {
		dir := filepath.Join(store, "tree/runs/unread", fmt.Sprint(step))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "metrics.json"), []byte(`{"loss": `), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Two files of which a sample has no difference: the last element is another.
	for i := range 2 {
		const n = 4 << 20
		head, err := safetensors.AppendHeader(nil, []safetensors.Entry{{Name: "large", DType: formats.F32,
			Shape: []int64{n / 4}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		p := append(head, make([]byte, n)...)
		p[len(p)-1] = byte(0x3f + i)
		if err := os.WriteFile(filepath.Join(store, "tree", fmt.Sprintf("far%d.safetensors", i)), p,
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, files := range more {
		for name, p := range files {
			at := filepath.Join(store, "tree", name)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at, p, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	v, err = volume.Open(volume.Options{Dir: store, HotSize: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	c := control.InProcess(control.NewHandler(v.Services(), control.Mount{Store: store, Started: time.Now()}))
	t.Cleanup(c.Close)
	if err := c.Sync(t.Context(), func(control.Progress) {}); err != nil {
		t.Fatal(err)
	}
	s := newServer(t.Context(), c, &place.Place{Store: store}, "", write)
	s.runs.Warm(t.Context())
	return s
}

var (
	hrefs   = regexp.MustCompile(`(?:href|data-load|data-src)="([^"]*)"`)
	unescap = strings.NewReplacer("&amp;", "&", "&#43;", "+", "&#39;", "'", "&#34;", `"`)
)

// Every page that a page leads to is there, has a heading, and shows names as text; its JSON is JSON.
func TestPages(t *testing.T) {
	s := serveStore(t, false)
	at := func(r *http.Request) { r.Host = "localhost" }
	seen, todo := map[string]bool{}, []string{"/"}
	for len(todo) > 0 {
		to := todo[0]
		todo = todo[1:]
		r, b := ask(t, s.gate, "GET", to, at)
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", to, r.StatusCode, b)
			continue
		}
		switch kind := r.Header.Get("Content-Type"); {
		case strings.HasPrefix(kind, "application/json"):
			if !json.Valid([]byte(b)) {
				t.Errorf("%s: no JSON: %.200s", to, b)
			}
			continue
		case !strings.HasPrefix(kind, "text/html"):
			continue
		}
		if strings.Contains(b, "<script>alert") {
			t.Errorf("%s: a name is executed", to)
		}
		if !strings.HasPrefix(to, "/part/") && strings.Count(b, "<h1") != 1 {
			t.Errorf("%s: %d headings", to, strings.Count(b, "<h1"))
		}
		for _, m := range hrefs.FindAllStringSubmatch(b, -1) {
			u, err := url.Parse(unescap.Replace(m[1]))
			if err != nil {
				t.Errorf("%s leads to %s: %v", to, m[1], err)
				continue
			}
			if u.Path == "" || u.Scheme != "" {
				continue
			}
			if next := u.String(); !seen[next] && len(seen) < 400 {
				seen[next] = true
				todo = append(todo, next)
			}
		}
	}
	if len(seen) < 60 {
		t.Errorf("only %d pages were found", len(seen))
	}
	_, b := ask(t, s.gate, "GET", "/run?run=a", at)
	for _, want := range []string{"val_loss", `0.3333 best`, "What changed", "ckptfs log "} {
		if want != "What changed" && !strings.Contains(b, want) {
			t.Errorf("the page of the run does not say %s", want)
		}
	}
	// A metric is drawn once, however often it is asked for.
	_, b = ask(t, s.gate, "GET", "/run?run=a"+strings.Repeat("&metric=acc", 1000), at)
	if n := strings.Count(b, "acc over the steps</figcaption>"); n != 1 {
		t.Errorf("%d charts of a metric", n)
	}
	_, b = ask(t, s.gate, "GET", "/part/diff?a=runs/a/1&b=runs/a/2", at)
	if !strings.Contains(b, "2 tensors equal") || !strings.Contains(b, "layers.1.w") ||
		!strings.Contains(b, "0.0909") {
		t.Errorf("what changed: %s", b)
	}
	_, b = ask(t, s.gate, "GET", "/part/diff?a=far0.safetensors&b=far1.safetensors", at)
	if !strings.Contains(b, `none in the sample: <a href="/diff?a=far0.safetensors&amp;b=far1.safetensors&amp;full=1">`) {
		t.Errorf("what a sample misses: %s", b)
	}
	_, b = ask(t, s.gate, "GET", "/part/diff?a=far0.safetensors&b=far1.safetensors&full=1", at)
	if strings.Contains(b, "none in the sample") || !strings.Contains(b, `<td class="num">1.5<`) {
		t.Errorf("all of it: %s", b)
	}
	_, b = ask(t, s.gate, "GET", "/part/tensors?path=runs/a/2/model.safetensors", at)
	if n := strings.Count(b, `first stored by <a href="/path?path=runs%2Fa%2F1%2Fmodel.safetensors">`); n != 2 ||
		strings.Count(b, "first stored here") != 1 {
		t.Errorf("who stored the tensors: %s", b)
	}
	for to, code := range map[string]int{"/nothing": 404, "/run?run=nope": 404, "/path?path=runs/nope": 404,
		"/path?path=../x": 400, "/assets/": 404, "/assets": 404, "/assets/none.js": 404,
		"/tensor?file=runs/a/1/model.safetensors&name=no": 404,
		"/part/values?file=runs/a/1/metrics.json&name=x":  404} {
		r, b := ask(t, s.gate, "GET", to, at)
		if r.StatusCode != code || !strings.Contains(b, `role="alert"`) {
			t.Errorf("%s: %d, want %d: %s", to, r.StatusCode, code, b)
		}
	}
}

// Nothing is changed without --write, and with it not by a form of another page.
func TestDo(t *testing.T) {
	for _, write := range []bool{false, true} {
		s := serveStore(t, write)
		do := func(form url.Values) (*http.Response, string) {
			return ask(t, s.gate, "POST", "/do?"+form.Encode(), func(r *http.Request) {
				r.Host = "localhost"
				r.PostForm = form
				r.Form = form
			})
		}
		for proof, why := range map[string]string{"": "lacks the proof",
			newServer(t.Context(), s.c, s.at, "", write).gate.forms: "another page"} {
			r, b := do(url.Values{"what": {"sync"}, "proof": {proof}})
			if !write {
				why = "without --write"
			}
			if r.StatusCode != http.StatusForbidden || !strings.Contains(b, why) {
				t.Errorf("with the proof %q: %d, not %q: %s", proof, r.StatusCode, why, b)
			}
		}
		r, b := do(url.Values{"what": {"sync"}, "proof": {s.gate.forms}, "back": {"//elsewhere.example"}})
		if write != (r.StatusCode == http.StatusOK) || write && strings.Contains(b, "elsewhere") {
			t.Errorf("--write %v: %d %s", write, r.StatusCode, b)
		}
		if !write {
			continue
		}
		for _, what := range []string{"prune", "evict", "hydrate"} {
			r, b := do(url.Values{"what": {what}, "path": {"runs/a"}, "proof": {s.gate.forms}})
			if r.StatusCode != http.StatusOK {
				t.Errorf("%s: %d %s", what, r.StatusCode, b)
			}
		}
		for _, what := range []string{"sync", "prune", "evict", "hydrate"} {
			r, b := do(url.Values{"what": {what}, "path": {"../.."}, "proof": {s.gate.forms}})
			if r.StatusCode != http.StatusBadRequest || !strings.Contains(b, "leads out") {
				t.Errorf("%s outside of the mount: %d %s", what, r.StatusCode, b)
			}
		}
		r, _ = do(url.Values{"what": {"format"}, "proof": {s.gate.forms}})
		if r.StatusCode != http.StatusBadRequest {
			t.Errorf("what there is not: %d", r.StatusCode)
		}
	}
}

func TestShown(t *testing.T) {
	for in, want := range map[string]string{"runs/a": "runs/a", "a\x1b[2J": `"a\x1b[2J"`, "größe": "größe"} {
		if got := shown(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	for _, long := range []string{strings.Repeat("x", 10<<20), strings.Repeat("ö", 500),
		strings.Repeat("\xff", 10000)} {
		if got := shown(long); len(got) > 4*mostShown+8 {
			t.Errorf("%d bytes of a name of %d", len(got), len(long))
		}
	}
}

// What is damaged, lost or left plain is said, also if no check has found it yet.
func TestWrong(t *testing.T) {
	if got := wrong(&control.Status{}, &control.Stats{}, "/s"); len(got) != 0 {
		t.Errorf("of a store in order: %q", got)
	}
	busy := &control.Status{PackingWaits: "other programs use all processors"}
	if got := wrong(busy, &control.Stats{}, "/s"); len(got) != 0 {
		t.Errorf("of a machine that is busy: %q", got)
	}
	got := wrong(&control.Status{Plain: make([]control.Failure, 2),
		Refused: control.Refused{MoreSidecars: 3}},
		&control.Stats{Damaged: 1, Lost: 4}, "/s")
	for _, want := range []string{"1 packed file cannot", "4 packed files", "2 files not packed", "3 such"} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
}

func TestValues(t *testing.T) {
	var p []byte
	for i := range 10_000 {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(float32(i)/10_000-0.5))
	}
	for _, x := range []float64{math.NaN(), math.Inf(1)} {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(float32(x)))
	}
	v, err := readValues(bytes.NewReader(p), formats.F32)
	if err != nil {
		t.Fatal(err)
	}
	h := v.chart().Data.(histogram)
	sum := int64(0)
	for i, n := range h.Counts {
		sum += n
		if n < 105 || n > 145 { // of 125
			t.Errorf("bin %d: %d", i, n)
		}
	}
	if s := v.stats(); s.NaN != 1 || s.Inf != 1 || sum < 9990 || sum > 10010 ||
		math.Abs(v.std()-0.2887) > 1e-3 || math.Abs(float64(h.Low)+0.5) > 1e-6 {
		t.Errorf("%+v, %d, %g, %+v", s, sum, v.std(), h)
	}
	one, err := readValues(bytes.NewReader(p[:4]), formats.F32)
	if err != nil {
		t.Fatal(err)
	}
	if h := one.chart().Data.(histogram); h.Low != -1 || h.Counts[bins/2] != 1 || one.coarse() {
		t.Errorf("of one value: %+v", h)
	}
}

// Elements that lie close together far from zero, or that no float32 holds, are told apart.
func TestValuesClose(t *testing.T) {
	for name, at := range map[string]func(i int) float64{
		"close": func(i int) float64 { return 1e6 + float64(i%8)/1000 },
		"far":   func(i int) float64 { return float64(i%8-4) * 4e307 },
	} {
		var p []byte
		for i := range 8000 {
			p = binary.LittleEndian.AppendUint64(p, math.Float64bits(at(i)))
		}
		v, err := readValues(bytes.NewReader(p), formats.F64)
		if err != nil || !v.coarse() {
			t.Fatalf("%s: %v, %+v", name, err, v.sum)
		}
		if err := v.count(bytes.NewReader(p), formats.F64); err != nil {
			t.Fatal(err)
		}
		h := v.chart().Data.(histogram)
		full := 0
		for _, n := range h.Counts {
			if n == 1000 {
				full++
			} else if n != 0 {
				t.Errorf("%s: %d in a bin", name, n)
			}
		}
		if full != 8 {
			t.Errorf("%s: %v", name, h.Counts)
		}
		if name == "close" && math.Abs(v.std()-0.002291) > 1e-5 {
			t.Errorf("a deviation of %g", v.std())
		}
	}
}

// Where no script runs, each chart says so, and where its numbers are.
func TestChartsWithoutScripts(t *testing.T) {
	s := serveStore(t, false, map[string][]byte{"runs/m/1/metrics.json": []byte(`{"val_loss": 0.5}`)})
	for _, at := range []string{"/", "/run?run=m"} {
		_, b := ask(t, s.gate, "GET", at, local)
		if n := strings.Count(b, `class="canvas"`); n == 0 || n != strings.Count(b, "<noscript>") {
			t.Errorf("%s: %d charts: %s", at, n, b)
		}
	}
}
