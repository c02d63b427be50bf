package pages

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"ckptfs/integration/mounttest"
)

// pictured are the pages that docs/pages.md shows, and how much of each, in pixels.
var pictured = []struct {
	file, path string
	height     int64
}{
	{"store", "/", 1000},
	{"runs", "/runs", 520},
	{"run", "/run?run=base", 1500},
	{"changed", "/diff?a=runs/tune-head/400&b=runs/tune-head/500", 900},
	{"lineage", "/lineage", 760},
}

// elsewhere names the mount as a reader has it.
const elsewhere = `(() => {
	const w = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (w.nextNode()) w.currentNode.data = w.currentNode.data.replaceAll(%q, "/mnt");
	return true;
})()`

// pictures takes the pictures of docs/pictures; with -update they are written.
func (b *tab) pictures(m *mounttest.Mount) {
	for _, p := range pictured {
		b.width(1000, p.height)
		b.visit(p.path)
		b.sound()
		eval[bool](b, fmt.Sprintf(elsewhere, m.Dir))
		taken, err := chromedp.Call(b.ctx, page.CaptureScreenshot,
			page.CaptureScreenshotParams{Format: "png"})
		if err != nil {
			b.t.Fatal(err)
		}
		file := filepath.Join("../../docs/pictures", p.file+".png")
		if *update {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				b.t.Fatal(err)
			}
			if err := os.WriteFile(file, taken.Data, 0o644); err != nil {
				b.t.Fatal(err)
			}
		}
		if n := len(taken.Data); n > 150_000 {
			b.t.Errorf("%s has %d bytes", file, n)
		}
		if _, err := os.Stat(file); err != nil {
			b.t.Errorf("%v: go test ./integration/pages -run TestPages -update makes it", err)
		}
	}
}
