package pages

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"ckptfs/integration/mounttest"
)

const (
	// sly wants to be more than a name: elements, an attribute's end, a template, text from right to left.
	sly = `<img src=x onerror=alert(1)><b id=sly>"'&{{.}}` + "\u202e\x1b[31m\n</script><script>alert(2)</script>"
	// slyFolder is that as a name of a folder, which has no slash.
	slyFolder = `<img src=x onerror=alert(1)><b id=sly>"'&{{.}}` + "\u202e\x1b[31m\n"
)

// tensorFile is a safetensors file of tensors of four bytes.
func tensorFile(names func(yield func(string) bool)) []byte {
	var head, data bytes.Buffer
	head.WriteByte('{')
	for name := range names {
		quoted, err := json.Marshal(name)
		if err != nil {
			panic(err) // a string always can be
		}
		if head.Len() > 1 {
			head.WriteByte(',')
		}
		fmt.Fprintf(&head, `%s:{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}`, quoted, data.Len(), data.Len()+4)
		_ = binary.Write(&data, binary.LittleEndian, float32(data.Len()))
	}
	head.WriteByte('}')
	for head.Len()%8 != 0 {
		head.WriteByte(' ')
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(head.Len()))
	return append(append(out, head.Bytes()...), data.Bytes()...)
}

// client asks the pages without a browser.
func client(t *testing.T, at string) func(path string) (status int, body string, took time.Duration) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar}
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string, time.Duration) {
		t.Helper()
		begin := time.Now()
		r, err := c.Get("http://" + u.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		var b bytes.Buffer
		if _, err := b.ReadFrom(r.Body); err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, b.String(), time.Since(begin)
	}
	get("/?" + u.RawQuery)
	return get
}

// A store whose names want to be more than names: all of them are text, and files of very long names and of
// very many tensors have pages that a browser can bear. CKPTFS_PAGES=full has 600,000 tensors in one.
func TestHostile(t *testing.T) {
	t.Parallel()
	many, flags := 200_000, []string(nil)
	if os.Getenv("CKPTFS_PAGES") == "full" {
		many, flags = 600_000, []string{"--memory", "1GiB"} // with less, such a file is a blob
	}
	m := mounttest.New(t, flags...)
	run := "runs/" + slyFolder
	for step := 1; step <= 2; step++ {
		dir := m.Path(run, fmt.Sprint(step))
		m.Must(os.MkdirAll(dir, 0o755))
		metrics, err := json.Marshal(map[string]any{sly: 1 / float64(step), "\x00\x1b]0;t\a": step,
			strings.Repeat("long", 20): 1})
		m.Must(err)
		m.Must(os.WriteFile(dir+"/metrics.json", metrics, 0o644))
		b, _ := mounttest.SafetensorsOf([]string{sly, "layers.0." + sly},
			[][]byte{mounttest.Noise(1, 64<<10), mounttest.Noise(uint64(step), 64<<10)})
		m.Must(os.WriteFile(dir+"/"+slyFolder+".safetensors", b, 0o644))
	}
	m.Must(os.MkdirAll(m.Path("runs/long/1"), 0o755))
	lengths := []int{1 << 20, 10 << 20}
	long := func(n int) string { return fmt.Sprintf("runs/long/1/%d.safetensors", n) }
	for _, n := range lengths {
		m.Must(os.WriteFile(m.Path(long(n)), tensorFile(func(yield func(string) bool) {
			_ = yield(strings.Repeat("<b>a.", n/5)) && yield("short")
		}), 0o644))
	}
	m.Must(os.MkdirAll(m.Path("runs/many/1"), 0o755))
	m.Must(os.WriteFile(m.Path("runs/many/1/model.safetensors"), tensorFile(func(yield func(string) bool) {
		for i := range many {
			if !yield(fmt.Sprintf("layers.%d.part.%d.w", i/1000, i%1000)) {
				return
			}
		}
	}), 0o644))
	m.Sync()
	at := serve(t, m.Dir)
	get := client(t, at)
	b := open(t, at)
	b.ready()

	const manyFile = "runs/many/1/model.safetensors"
	file := run + "/2/" + slyFolder + ".safetensors"
	query := func(page string, kv ...string) string {
		q := url.Values{}
		for i := 0; i < len(kv); i += 2 {
			q.Add(kv[i], kv[i+1])
		}
		return page + "?" + q.Encode()
	}
	pages := []string{"/", "/runs", query("/runs", "metric", sly), query("/run", "run", slyFolder),
		query("/compare", "run", slyFolder, "run", "long"), query("/path", "path", ""),
		query("/path", "path", run), query("/path", "path", run+"/2"), query("/path", "path", file),
		query("/tensor", "file", file, "name", sly),
		query("/diff", "a", run+"/1", "b", run+"/2"), "/lineage", query("/lineage", "path", file), "/space",
		query("/space", "path", run), query("/path", "path", long(lengths[0])),
		query("/path", "path", long(lengths[1])),
		query("/path", "path", manyFile),
		query("/path", "path", manyFile, "prefix", "layers.7."),
		query("/tensor", "file", manyFile, "name", "layers.7.part.7.w"),
		query("/diff", "a", long(lengths[0]), "b", long(lengths[1])),
		query("/diff", "a", file, "b", manyFile), "/" + url.PathEscape(sly)}
	for _, p := range pages {
		b.visit(p)
		notThere := strings.HasPrefix(p, "/%")
		for _, said := range b.said() {
			if !notThere {
				t.Errorf("%.100s: %s", p, said)
			}
		}
		if n := eval[int](b, `document.querySelectorAll("#sly, main img, main b").length`); n > 0 {
			t.Errorf("%.100s: %d elements are made of names", p, n)
		}
		if bad := b.text(`(/[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]/.exec([...document.querySelectorAll("main *")]
			.filter((e) => !e.matches("script")).flatMap((e) => [...e.childNodes]).filter((n) => n.nodeType === 3)
			.map((n) => n.data).join(" ").replace(/\n/g, " ")) || [""])[0]`); bad != "" {
			t.Errorf("%.100s: %q steers the text", p, bad)
		}
		if w := eval[int](b, "document.documentElement.scrollWidth"); w > 1000 {
			t.Errorf("%.100s: the page is %d wide: %s", p, w, b.text(wide))
		}
		bytesOf := eval[int](b, "document.documentElement.outerHTML.length")
		if bytesOf > 4<<20 {
			t.Errorf("%.100s: the page has %d bytes", p, bytesOf)
		}
		parts := eval[[]string](b, `performance.getEntriesByType("resource").map((e) => e.name).filter((n) =>
			n.includes("/part/")).map((n) => n.slice(location.origin.length))`)
		took := []string{}
		for _, part := range append([]string{p}, parts...) {
			_, _, d := get(part)
			name, _, _ := strings.Cut(part, "?")
			took = append(took, fmt.Sprintf("%s %d ms", name, d.Milliseconds()))
		}
		t.Logf("%.100s: %d bytes: %s", p, bytesOf, strings.Join(took, ", "))
	}
	// what the tree of a file links to
	b.visit(query("/path", "path", long(lengths[0])))
	links := eval[[]string](b, `[...document.querySelectorAll(".tree a")].map((a) => a.getAttribute("href"))`)
	for _, l := range links {
		status, _, took := get(l)
		t.Logf("%.60s, %d bytes: %d in %d ms", l, len(l), status, took.Milliseconds())
		if status != 200 {
			t.Errorf("a link of %d bytes, of a tensor: %d", len(l), status)
		}
	}
}
