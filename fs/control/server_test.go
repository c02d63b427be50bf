package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSocket(t *testing.T) {
	// Longer than the address of a socket can be.
	store := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	if err := os.MkdirAll(store, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), store); !errors.Is(err, ErrNoDaemon) {
		t.Fatalf("no socket: %v", err)
	}
	if _, err := Dial(t.Context(), store+"/gone"); errors.Is(err, ErrNoDaemon) ||
		!errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("no folder: %v", err)
	}

	// A daemon that died leaves its socket.
	dir, err := os.Open(store)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: in(dir, SocketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	if _, err := Dial(t.Context(), store); !errors.Is(err, ErrNoDaemon) {
		t.Fatalf("dead socket: %v", err)
	}

	srv, err := Serve(store, NewHandler(allOf(newShelf()), Mount{}))
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Lstat(filepath.Join(store, SocketName))
	if err != nil || st.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	c, err := Dial(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stats(t.Context()); err != nil {
		t.Error(err)
	}
	c.Close()
	if err := srv.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(store); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestOnlyTheOwnerAndRootMayAsk(t *testing.T) {
	h := allowed(NewHandler(allOf(newShelf()), Mount{}), 1000)
	for _, tc := range []struct {
		ctx    context.Context
		status int
	}{
		{context.WithValue(t.Context(), peerKey{}, &unix.Ucred{Uid: 1000}), http.StatusOK},
		{context.WithValue(t.Context(), peerKey{}, &unix.Ucred{Uid: 0}), http.StatusOK},
		{context.WithValue(t.Context(), peerKey{}, &unix.Ucred{Uid: 1001}), http.StatusForbidden},
		{t.Context(), http.StatusForbidden}, // the kernel did not say
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(tc.ctx, http.MethodGet, "/v1/stats", nil))
		if w.Code != tc.status {
			t.Errorf("peer %v: status %d, want %d", tc.ctx.Value(peerKey{}), w.Code, tc.status)
		}
	}
}

// What is removed is logged with who asked for it; what a dry run looks at is not.
func TestLogOfRemovals(t *testing.T) {
	var lines []string
	m := Mount{Log: func(msg string, args ...any) {
		lines = append(lines, fmt.Sprintln(append([]any{msg}, args...)...))
	}}
	store := t.TempDir()
	srv, err := Serve(store, NewHandler(allOf(newShelf()), m))
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close(t.Context())
	c, err := Dial(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Prune(t.Context(), PruneOptions{DryRun: true}, nil); err != nil || len(lines) > 0 {
		t.Error(err, lines)
	}
	_, err = c.Prune(t.Context(), PruneOptions{Grace: time.Hour}, nil)
	err = errors.Join(err, c.Forgot(t.Context(), "runs/a", []string{"1", "2"}))
	if err != nil || len(lines) != 2 {
		t.Fatal(err, lines)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	who := fmt.Sprintf("user %s pid %d", me.Username, os.Getpid())
	for i, what := range []string{"the store was pruned grace 1h0m0s", "steps were forgotten run runs/a steps [1 2]"} {
		if !strings.HasPrefix(lines[i], what) || !strings.Contains(lines[i], who) {
			t.Errorf("%q, want %q and %q", lines[i], what, who)
		}
	}
}
