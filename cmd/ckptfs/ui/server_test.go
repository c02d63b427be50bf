package ui

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The library is the one of its package: scripts/assets --check compares all of it.
func TestAssets(t *testing.T) {
	for name, want := range map[string]string{
		"echarts.min.js": "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0",
	} {
		p, err := assets.ReadFile("assets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if got := sha256.Sum256(p); hex.EncodeToString(got[:]) != want {
			t.Errorf("%s has the hash %x", name, got)
		}
	}
}

// ask sends a request, and returns the answer; its body is read.
func ask(t *testing.T, h http.Handler, method, to string, set func(*http.Request)) (*http.Response, string) {
	t.Helper()
	r := httptest.NewRequest(method, to, http.NoBody)
	if set != nil {
		set(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	got := w.Result()
	b, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got, string(b)
}

func TestGate(t *testing.T) {
	inside := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "in")
	})
	shut := http.StatusForbidden
	g := &gate{token: newToken(), next: inside}
	for _, to := range []string{"/", "/?token=", "/?token=x", "/runs?token=" + g.token[1:]} {
		if r, b := ask(t, g, "GET", to, nil); r.StatusCode != shut || b == "in" {
			t.Errorf("%s: %d %s", to, r.StatusCode, b)
		}
	}
	r, _ := ask(t, g, "GET", "/run?run=a%2Fb&token="+g.token, nil)
	if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/run?run=a%2Fb" ||
		len(r.Cookies()) != 1 {
		t.Fatalf("%d, %v", r.StatusCode, r.Header)
	}
	if h, _ := ask(t, g, "HEAD", "/runs?token="+g.token, nil); h.StatusCode != http.StatusSeeOther ||
		len(h.Cookies()) != 1 {
		t.Errorf("HEAD: %d, %v", h.StatusCode, h.Header)
	}
	c := r.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || strings.Contains(c.Value, g.token) {
		t.Errorf("%v", c)
	}
	r, b := ask(t, g, "GET", "/run?run=a", func(r *http.Request) { r.AddCookie(c) })
	if r.StatusCode != http.StatusOK || b != "in" {
		t.Errorf("%d %s", r.StatusCode, b)
	}
	for name, want := range map[string]string{"Content-Security-Policy": policy, "Cache-Control": "no-store",
		"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	other := &gate{token: newToken(), next: inside}
	r, _ = ask(t, other, "GET", "/?token="+other.token, nil)
	if o := r.Cookies()[0]; o.Name == c.Name { // a browser keeps one of each name, for all ports of a host
		t.Errorf("another program's cookie takes the place of %v", c)
	}
	if r, _ := ask(t, other, "GET", "/", func(r *http.Request) { r.AddCookie(c) }); r.StatusCode != shut {
		t.Errorf("another program's cookie: %d", r.StatusCode)
	}
	r, b = ask(t, g, "GET", "/", func(r *http.Request) { r.Header.Set("Authorization", "token "+g.token) })
	if r.StatusCode != http.StatusOK || b != "in" {
		t.Errorf("by header: %d %s", r.StatusCode, b)
	}
	// A redirect stays here, however the path is spelt.
	r, _ = ask(t, g, "GET", "/x?token="+g.token, func(r *http.Request) {
		r.URL.Path = "//elsewhere.example/x"
	})
	if to := r.Header.Get("Location"); strings.HasPrefix(to, "//") || strings.Contains(to, "://") {
		t.Errorf("leads to %s", to)
	}
}

// Without a token a page of another name, which was made to lead here, is shut out.
func TestGateWithoutToken(t *testing.T) {
	g := &gate{next: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	for host, want := range map[string]int{"127.0.0.1:80": 200, "localhost:8700": 200, "localhost": 200,
		"[::1]:80": 200, "evil.example": 403, "evil.example:80": 403, "127.0.0.1.evil.example:80": 403,
		"10.0.0.1:80": 403, "": 403} {
		if r, _ := ask(t, g, "GET", "/", func(r *http.Request) { r.Host = host }); r.StatusCode != want {
			t.Errorf("%q: %d, want %d", host, r.StatusCode, want)
		}
	}
}

func TestListen(t *testing.T) {
	for where, loopback := range map[string]bool{"127.0.0.1:0": true, "localhost:0": true,
		"0.0.0.0:0": false, ":0": false} {
		ln, local, err := listen(where)
		if err != nil || local != loopback {
			t.Errorf("%s: %v, %v", where, local, err)
			continue
		}
		if u := address(ln, "x", ""); !strings.HasPrefix(u, "http://") || !strings.HasSuffix(u, "/?token=x") {
			t.Errorf("%s: %s", where, u)
		}
		if u := address(ln, "x", "a/b &c"); !strings.HasSuffix(u, "/path?path=a%2Fb+%26c&token=x") {
			t.Errorf("%s: %s", where, u)
		}
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		if _, _, err := listen("127.0.0.1:" + port); err == nil ||
			!strings.HasPrefix(err.Error(), "--listen 127.0.0.1:"+port) || !strings.Contains(err.Error(), "another port") {
			t.Errorf("a port that is taken: %v", err)
		}
		ln.Close()
	}
	if _, _, err := listen("8700"); err == nil || !strings.Contains(err.Error(), "HOST:PORT") {
		t.Errorf("%v", err)
	}
	for where, want := range map[string]string{"unix:": "is expected", "unix:@any": "is expected",
		"unix:/none/x": "--listen unix:/none/x: ", "192.0.2.1:80": "no such address", "127.0.0.1:99999": "--listen"} {
		if ln, _, err := listen(where); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", where, ln, err)
		}
	}
	path := filepath.Join(t.TempDir(), "sock")
	ln, local, err := listen("unix:" + path)
	if err != nil || !local {
		t.Fatal(local, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if _, _, err := listen("unix:" + path); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("in use: %v", err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ln.Close()
	again, _, err := listen("unix:" + path) // left behind
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := listen("unix:" + path); err == nil {
		t.Error("a file was replaced")
	}
}
