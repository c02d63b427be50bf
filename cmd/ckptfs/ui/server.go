package ui

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// policy is the Content-Security-Policy of all pages: nothing is loaded from anywhere else, and nothing that
// a name in a store might bring along is executed or styled.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// gate lets those in who have the token.
//
// The token comes once, in the URL. The answer sets a cookie and leads to the same URL without the token, so
// that links can be copied and history does not hold it. The cookie is no token: it is made from it, and ends
// with the program. Names of hosts are checked where no token guards: a foreign page whose name was made to
// lead here (DNS rebinding) has another.
type gate struct {
	token string // "": none is asked for
	forms string // what a form has to carry: random, with a token and without
	next  http.Handler
}

// cookieName begins the name of the cookie. A browser sends the cookies of a host to all of its ports:
// programs beside each other have names of their own, and none takes another's place.
const cookieName = "ckptfs-ui"

// cookie is the name of the cookie.
func (g *gate) cookie() string {
	sum := sha256.Sum256([]byte(g.pass()))
	return cookieName + "-" + hex.EncodeToString(sum[:8])
}

func newToken() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// pass is the value of the cookie.
func (g *gate) pass() string {
	m := hmac.New(sha256.New, []byte(g.token))
	m.Write([]byte(cookieName))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if g.token == "" {
		if !loopbackName(r.Host) {
			http.Error(w, "this page answers to localhost alone", http.StatusForbidden)
			return
		}
		g.next.ServeHTTP(w, r)
		return
	}
	if given := r.URL.Query().Get("token"); given != "" && same(given, g.token) {
		http.SetCookie(w, &http.Cookie{Name: g.cookie(), Value: g.pass(), Path: "/", HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
		to := *r.URL
		q := to.Query()
		q.Del("token")
		to.RawQuery = q.Encode()
		to.Scheme, to.Host = "", ""
		to.Path = "/" + strings.TrimLeft(to.Path, "/")
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			http.Redirect(w, r, to.String(), http.StatusSeeOther)
			return
		}
	}
	for _, c := range r.CookiesNamed(g.cookie()) {
		if same(c.Value, g.pass()) {
			g.next.ServeHTTP(w, r)
			return
		}
	}
	// Programs may send it in a header.
	if given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "token "); ok && same(given, g.token) {
		g.next.ServeHTTP(w, r)
		return
	}
	http.Error(w, "the token is missing or wrong: open the whole URL that ckptfs ui printed", http.StatusForbidden)
}

// loopbackName reports whether the host that a browser asked for is this machine's own.
func loopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}

// listen opens what --listen names: HOST:PORT, or unix:PATH.
func listen(where string) (ln net.Listener, loopback bool, err error) {
	if path, ok := strings.CutPrefix(where, "unix:"); ok {
		ln, err = listenUnix(path)
	} else {
		ln, loopback, err = listenTCP(where)
	}
	if err == nil {
		return ln, loopback || ln.Addr().Network() == "unix", nil
	}
	do := ""
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		do = "; another program answers there: name another port, or 0 for any that is free"
	case errors.Is(err, unix.EADDRNOTAVAIL):
		do = "; this machine has no such address: 0.0.0.0 is all that it has"
	case errors.Is(err, unix.EACCES) && !strings.HasPrefix(where, "unix:"):
		do = "; ports below 1024 are root's"
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return nil, false, fmt.Errorf("--listen %s: %w%s", where, err, do)
}

var errWhere = errors.New("HOST:PORT or unix:PATH is expected")

func listenTCP(where string) (ln net.Listener, loopback bool, err error) {
	host, _, err := net.SplitHostPort(where)
	if err != nil {
		return nil, false, errWhere
	}
	if ln, err = net.Listen("tcp", where); err != nil {
		return nil, false, err
	}
	ip := ln.Addr().(*net.TCPAddr).IP
	return ln, ip.IsLoopback() && host != "", nil
}

// listenUnix makes a socket that its owner alone may open. One without a place in the filesystem (an empty
// path, or one that begins with @) anybody might.
func listenUnix(path string) (net.Listener, error) {
	if path == "" || path[0] == '@' || path[0] == 0 {
		return nil, errWhere
	}
	// A socket that no program answers at is removed; anything else stays.
	if st, err := os.Lstat(path); err == nil && st.Mode()&fs.ModeSocket != 0 {
		c, err := net.Dial("unix", path)
		if err == nil {
			c.Close()
			return nil, errors.New("another program answers there; name another path")
		}
		if !errors.Is(err, unix.ECONNREFUSED) { // it may be another user's
			return nil, fmt.Errorf("%w; name another path", err)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	if st, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("no socket is there, but %s; name another path", st.Mode())
	}
	mask := unix.Umask(0o177) // nobody else may connect, from the first moment on
	defer unix.Umask(mask)
	return net.Listen("unix", path)
}

// address is the URL of the page of a path where ln listens; "": the first page.
func address(ln net.Listener, token, path string) string {
	u := url.URL{Scheme: "http", Host: ln.Addr().String(), Path: "/"}
	q := url.Values{}
	if path != "" {
		u.Path = "/path"
		q.Set("path", path)
	}
	if a, ok := ln.Addr().(*net.TCPAddr); ok && a.IP.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			u.Host = net.JoinHostPort(name, fmt.Sprint(a.Port))
		}
	} else if !ok {
		u.Host = "localhost" // of a socket, whatever the client calls it
	}
	if token != "" {
		q.Set("token", token)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// serve answers until ctx ends.
func serve(ctx context.Context, ln net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 1 << 20, BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		srv.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
