package text

import (
	"strings"
	"sync"
	"testing"
	"time"

	"ckptfs/fs/control"
)

// Each phase has its name, and a line of its own: a bar where its bytes are known, else a count.
func TestProgressOfPhases(t *testing.T) {
	var b strings.Builder
	update, done := Progress(&b, func() string { return "packing" })
	shows := func(what string, p control.Progress, words ...string) {
		t.Helper()
		b.Reset()
		update(p)
		for _, w := range words {
			if !strings.Contains(b.String(), w) {
				t.Errorf("%s: no %q in %q", what, w, b.String())
			}
		}
	}
	shows("a count", control.Progress{Phase: "looking at names", DoneFiles: 120_000},
		"looking at names, 120,000 files so far")
	shows("a bar after it",
		control.Progress{DoneBytes: 1 << 20, TotalBytes: 4 << 20, DoneFiles: 1, TotalFiles: 4}, "\r\x1b[K", "packing, file 2 of 4", "4.0 MiB")
	shows("a phase after that", control.Progress{Phase: "making it durable"}, "making it durable")
	if strings.Contains(b.String(), "file") {
		t.Errorf("files of a phase that counts none: %q", b.String())
	}
	shows("another bar", control.Progress{Phase: "comparing", DoneBytes: 2, TotalBytes: 4}, "comparing",
		"4 B")
	b.Reset()
	done()
	if s := b.String(); s == "" || strings.Contains(s, "comparing") {
		t.Errorf("at the end: %q", s)
	}
}

// A bar is of files where bytes are not known, and says how long it takes still.
func TestProgressOfFiles(t *testing.T) {
	var b strings.Builder
	update, done := Progress(&b, func() string { return "evicting" })
	update(control.Progress{DoneFiles: 10, DoneBytes: 5 << 20})
	if s := b.String(); !strings.Contains(s, "evicting, 10 files so far, 5.00 MiB") {
		t.Errorf("before files are counted: %q", s)
	}
	b.Reset()
	update(control.Progress{DoneFiles: 20, TotalFiles: 40, DoneBytes: 10 << 20})
	if s := b.String(); !strings.Contains(s, "evicting, 10.0 MiB") || !strings.Contains(s, "50%") ||
		!strings.Contains(s, "20/40") {
		t.Errorf("of files: %q", s)
	}
	b.Reset()
	update(control.Progress{DoneBytes: 1 << 20, TotalBytes: 4 << 20, DoneFiles: 20, TotalFiles: 40})
	if s := b.String(); !strings.Contains(s, "1.0/4.0 MiB") {
		t.Errorf("of bytes after it: %q", s)
	}
	done()
	done()
}

func TestRate(t *testing.T) {
	from := &control.Progress{DoneFiles: 100, DoneBytes: 1 << 20}
	for _, tc := range []struct {
		to   control.Progress
		in   time.Duration
		want string
	}{
		{control.Progress{DoneFiles: 200, DoneBytes: 5 << 20}, time.Second / 2, ""},
		{control.Progress{DoneFiles: 200, DoneBytes: 5 << 20}, 2 * time.Second, ", 2.00 MiB/s"},
		{control.Progress{DoneFiles: 300, DoneBytes: 1 << 20}, 2 * time.Second, ", 100 files/s"},
		{*from, time.Hour, ""},
	} {
		if got := rate(from, &tc.to, tc.in); got != tc.want {
			t.Errorf("%+v in %v: %q, want %q", tc.to, tc.in, got, tc.want)
		}
	}
}

// What is quick needs no word, and what was said is taken away.
func TestWaiting(t *testing.T) {
	var mu sync.Mutex
	var b strings.Builder
	said := make(chan string, 64)
	to := writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		b.Write(p)
		said <- b.String()
		return len(p), nil
	})
	waiting(to, "counting", time.Hour)()
	if b.Len() > 0 {
		t.Errorf("%q", &b)
	}
	done := waiting(to, "counting", time.Millisecond)
	if s := <-said; !strings.HasPrefix(s, "\rcounting, 1ms so far") {
		t.Errorf("%q", s)
	}
	go func() { // it goes on until it is done
		for range said {
		}
	}()
	done()
	done()
	mu.Lock()
	defer mu.Unlock()
	if !strings.HasSuffix(b.String(), "\r\x1b[K") {
		t.Errorf("%q", &b)
	}
}
