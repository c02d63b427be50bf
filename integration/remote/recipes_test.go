package remote

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"ckptfs/integration/mounttest"
	"ckptfs/integration/recipe"
)

// counted is a machine that reaches the engine through a proxy, which counts what goes to and fro.
type counted struct {
	*mounttest.Mount
	mu   sync.Mutex
	got  map[string]int   // ranges of data objects that were delivered, each by how often
	put  map[string]int64 // data objects, and their bytes
	read int64            // bytes of got
}

func newCounted(t *testing.T, e *mounttest.Engine, writer string) *counted {
	t.Helper()
	at, err := url.Parse(e.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{Mount: mounttest.New(t, "--push", "manual", "--remote-poll", "24h"), got: map[string]int{},
		put: map[string]int64{}}
	pass := httputil.NewSingleHostReverseProxy(at)
	pass.ModifyResponse = func(r *http.Response) error {
		c.count(r.Request, r)
		return nil
	}
	proxy := httptest.NewServer(pass)
	t.Cleanup(proxy.Close)
	c.Run("remote", "add", e.URL("team"), c.Dir, "--endpoint", proxy.URL, "--writer", writer)
	return c
}

// count notes an answer that concerns a data object.
func (c *counted) count(q *http.Request, r *http.Response) {
	if !strings.Contains(q.URL.Path, "/team/d/") || r.StatusCode/100 != 2 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch q.Method {
	case http.MethodGet:
		c.got[q.URL.Path+" "+r.Header.Get("Content-Range")]++
		c.read += r.ContentLength
	case http.MethodPut:
		if _, twice := c.put[q.URL.Path]; twice {
			c.T.Errorf("%s is put twice", q.URL.Path)
		}
		c.put[q.URL.Path] = q.ContentLength
	}
}

// since is how many bytes of data objects came since it was called last. Nothing came twice.
func (c *counted) since() int64 {
	c.T.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for what, n := range c.got {
		if n > 1 {
			c.T.Errorf("%s was read %d times", what, n)
		}
	}
	n := c.read
	c.read = 0
	return n
}

func (c *counted) putBytes() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.put {
		n += k
	}
	return n
}

// TestRecipesShared: a folder of a model, its quants, fine-tunes and a merge, pushed by one machine, takes
// what the models take. Others read it as stubs or pulled, evicted, with the model left to the remote, and
// without it, and nothing is transferred twice.
func TestRecipesShared(t *testing.T) {
	const size = 512 << 10
	e := mounttest.StartEngine(t)
	a, b, c := newCounted(t, e, "a"), newCounted(t, e, "b"), newCounted(t, e, "c")
	const base, eight, four = "runs/m/1/model.safetensors", "runs/m/1/Q8_0.gguf", "runs/m/1/Q4_K.gguf"
	files, models := map[string][]byte{}, int64(0)
	for _, f := range []struct {
		path string
		of   recipe.Recipe
	}{
		{base, recipe.Recipe{Kind: recipe.Half}}, {eight, recipe.Recipe{Kind: recipe.Quant}},
		{four, recipe.Recipe{Kind: recipe.Quant, Step: 1}},
		{"runs/m/1/BF16.gguf", recipe.Recipe{Kind: recipe.Quant, Step: 2}},
		{"runs/chat/1/model.safetensors", recipe.Recipe{Kind: recipe.Half, Step: 1}},
		{"runs/code/1/model.safetensors", recipe.Recipe{Kind: recipe.Half, Step: 2}},
		{"runs/merge/1/model.safetensors", recipe.Recipe{Kind: recipe.Merge}},
	} {
		f.of.Seed, f.of.Size = 1, size
		files[f.path] = f.of.Bytes()
		if f.of.Kind == recipe.Half {
			models += int64(len(files[f.path]))
		}
		save(t, a.Path(f.path), files[f.path])
		a.Sync()
	}
	all := func(m *counted, when string, but ...string) {
		t.Helper()
		for _, p := range slices.Sorted(maps.Keys(files)) {
			if slices.Contains(but, p) {
				continue
			}
			if got, err := os.ReadFile(m.Path(p)); err != nil || string(got) != string(files[p]) {
				t.Errorf("%s: %s: %d bytes, %v", when, p, len(got), err)
			}
		}
	}
	a.Run("push", a.Dir)
	if n := a.putBytes(); n > models || n == 0 {
		t.Errorf("%d bytes are put, the models have %d", n, models)
	}
	a.EvictAll()
	all(a, "pushed and evicted")

	// Pulled: nothing is read from the remote any more.
	b.Run("pull", b.Dir)
	if n := b.since(); n > a.putBytes() {
		t.Errorf("%d bytes came, %d were put", n, a.putBytes())
	}
	b.EvictAll()
	all(b, "pulled and evicted")
	if n := b.since(); n > 0 {
		t.Errorf("%d bytes came since", n)
	}

	// As stubs: a quant needs chunks of the model, and the model only what is left of these.
	c.Run("fetch", c.Dir)
	same(t, c.Path(four), files[four])
	first := c.since()
	same(t, c.Path(base), files[base])
	all(c, "read as stubs")
	if more := c.since(); first == 0 || first+more > a.putBytes() {
		t.Errorf("%d bytes came, then %d, and %d were put", first, more, a.putBytes())
	}
	all(c, "read again")
	if n := c.since(); n > 0 {
		t.Errorf("%d bytes came again", n)
	}

	// The model is left to the remote: what is computed of it is read all the same.
	b.Run("drop", b.Path(base))
	b.Run("prune", "--grace", "0s", b.Dir)
	b.EvictAll()
	b.since()
	clear(b.got) // what was left to the remote may come once more
	all(b, "with the model left to the remote")
	if n := b.since(); n > int64(len(files[base])) {
		t.Errorf("%d bytes came", n)
	}

	// One removes it, everywhere: the quants stay.
	b.Must(os.Remove(b.Path(base)))
	b.Run("push", b.Dir)
	for _, m := range []*counted{a, b, c} {
		m.Run("fetch", m.Dir)
		if _, err := os.Stat(m.Path(base)); err == nil {
			t.Errorf("%s is there on %s", base, filepath.Base(m.Dir))
		}
		m.Run("prune", "--grace", "0s", m.Dir)
		m.EvictAll()
		all(m, "without the model", base)
		if said := m.Run("check", "--read-data", m.Dir); !strings.Contains(said, "no damage") {
			t.Error(said)
		}
		t.Log(fmt.Sprint(filepath.Base(m.Store), ": ", m.since(), " bytes came at the end"))
	}
	fresh := newCounted(t, e, "d")
	fresh.Run("pull", fresh.Dir)
	fresh.EvictAll()
	all(fresh, "pulled without the model", base)
	fresh.since()
}
