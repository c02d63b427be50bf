package pages

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// tab is a page of a browser, and what went wrong on it.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string // the URL of the pages, without the last slash

	mu    sync.Mutex
	wrong []string
}

// serve runs ckptfs ui on a path until the test ends, and returns the URL with the token.
func serve(t *testing.T, path string, flags ...string) string {
	t.Helper()
	cmd := exec.Command(mounttest.Bin, append([]string{"ui", "--json", path}, flags...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("ckptfs ui: %v: %s", err, said.String())
		}
	})
	var started struct{ URL string }
	if err := json.NewDecoder(out).Decode(&started); err != nil {
		t.Fatalf("ckptfs ui: %v: %s", err, said.String())
	}
	return started.URL
}

// open starts a browser, and opens the page that ckptfs ui printed.
func open(t *testing.T, at string) *tab {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		mounttest.Missing(t, "no chromium here: scripts/setup-browser installs it")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium),
		chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1000, 900),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-background-networking", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	alive, end := context.WithTimeout(t.Context(), mounttest.MaxLife)
	ctx, closed := chromedp.NewExecAllocator(alive, options...)
	ctx, shut := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for its end
		shut()
		closed()
		end()
	})
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	b := &tab{t: t, ctx: ctx, base: "http://" + u.Host}
	if err := chromedp.Listen(ctx, b.hear); err != nil { // starts it
		t.Fatal(err)
	}
	b.do(chromedp.Navigate(at))
	return b
}

func (b *tab) say(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = append(b.wrong, fmt.Sprintf(format, args...))
}

// said is what went wrong since it was asked for.
func (b *tab) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := b.wrong
	b.wrong = nil
	return said
}

// hear keeps what must not happen.
func (b *tab) hear(event any) {
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if to := e.Request.URL; to != "data:," && !strings.HasPrefix(to, b.base+"/") {
			b.say("something is asked of another host: %.200s", to)
		}
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 {
			b.say("%d: %.200s", e.Response.Status, e.Response.URL)
		}
	case *runtime.EventExceptionThrown:
		b.say("the script fails: %v", e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		for _, a := range e.Args {
			b.say("the console has a line of type %s: %s", e.Type, a.Value)
		}
	case *log.EventEntryAdded: // what the Content-Security-Policy forbids is here too
		b.say("the log has a line of level %s: %s", e.Entry.Level, e.Entry.Text)
	case *page.EventJavascriptDialogOpening:
		b.say("a dialog opens: %s", e.Message)
		go func() {
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog,
				page.HandleJavaScriptDialogParams{Accept: true})
		}()
	}
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*daemon.Patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// try is the value of an expression on the page.
func try[T any](b *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, 2*daemon.Patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := try[T](b, expression)
	if err != nil {
		b.t.Fatalf("%v: %.300s", err, expression)
	}
	return v
}

func (b *tab) text(expression string) string {
	b.t.Helper()
	return eval[string](b, expression)
}

// whole is "" once a page and its parts are loaded and all charts are drawn, which is when they come into
// view.
const whole = `(() => {
	if (document.readyState !== "complete") return "it loads";
	const main = document.getElementById("main");
	if (main && main.dataset.refresh) return "it will refresh";
	if (document.querySelector("[data-load]")) return "a part is not there";
	for (const f of document.querySelectorAll("figure.chart")) {
		if (f.dataset.drawn) continue;
		f.scrollIntoView();
		return "a chart is not drawn: " + f.textContent.slice(0, 100);
	}
	for (const p of document.querySelectorAll(".progress")) {
		if (/were compared/.test(p.textContent)) return p.textContent;
	}
	scrollTo(0, 0);
	return "";
})()`

// ready waits until the page is whole.
func (b *tab) ready() {
	b.t.Helper()
	lacks := ""
	if err := daemon.Within(4*daemon.Patience, "", func() bool {
		var err error
		if lacks, err = try[string](b, whole); err != nil {
			lacks = err.Error() // it may be on its way to another page
		}
		return lacks == ""
	}); err != nil {
		b.t.Fatalf("%s: %s; %q", b.where(), lacks, b.said())
	}
}

func (b *tab) where() string { return b.text("location.pathname + location.search") }

// visit loads a page.
func (b *tab) visit(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base + path))
	b.ready()
}

// sound fails the test for what went wrong on the page.
func (b *tab) sound() {
	b.t.Helper()
	for _, s := range b.said() {
		b.t.Errorf("%.200s: %s", b.where(), s)
	}
	if s := b.text(`[...document.querySelectorAll("main [role=alert]")].map((e) => e.textContent).join("; ")`); s != "" {
		b.t.Errorf("%.200s: %s", b.where(), s)
	}
}

// click clicks the first link or button in the main part, or in the navigation, whose text is this.
func (b *tab) click(text string) {
	b.t.Helper()
	found := eval[[]float64](b, fmt.Sprintf(`(() => {
		const e = [...document.querySelectorAll("a, button, summary")].find((e) => e.textContent.trim() === %q && e.checkVisibility());
		if (!e) return [];
		e.scrollIntoView({ block: "center" });
		const r = e.getClientRects()[0];
		window.leaves = true;
		return [r.left + Math.min(r.width / 2, 20), r.top + r.height / 2];
	})()`, text))
	if len(found) == 0 {
		b.t.Fatalf("%s: nothing to click says %q", b.where(), text)
	}
	b.do(chromedp.MouseClickXY(found[0], found[1]))
	err := daemon.Until("", func() bool {
		stays, err := try[bool](b, "!!window.leaves")
		return err == nil && !stays
	})
	if err != nil {
		b.t.Fatalf("%s: a click at %q leads nowhere", b.where(), text)
	}
	b.ready()
}

// width makes the window as wide as that; that of a phone is touched.
func (b *tab) width(pixels, height int64) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: pixels, Height: height, DeviceScaleFactor: 1,
			Mobile: pixels < 600})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) scheme(name string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name},
			{Name: "prefers-reduced-motion", Value: "reduce"}}})
	if err != nil {
		b.t.Fatal(err)
	}
}

// axe is the program that finds what shuts people out.
func axe(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(cache, "ckptfs/tools/axe-core-*/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		mounttest.Missing(t, "no axe-core here: scripts/setup-browser fetches it")
	}
	program, err := os.ReadFile(found[len(found)-1])
	if err != nil {
		t.Fatal(err)
	}
	return string(program)
}

// accessible holds that axe finds nothing.
func (b *tab) accessible(program, as string) {
	b.t.Helper()
	eval[int](b, program+"; 0")
	violations := eval[[]string](b, `axe.run(document, { preload: false, resultTypes: ["violations"],
		runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }).then((r) => r.violations.flatMap((v) =>
			v.nodes.slice(0, 3).map((n) => v.id + ": " + n.html.slice(0, 200) + ": " + n.failureSummary)))`)
	for _, v := range violations {
		b.t.Errorf("%.200s, %s: %s", b.where(), as, v)
	}
	b.said() // what axe itself looked for
}
