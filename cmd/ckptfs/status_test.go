package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/text/texttest"
	"ckptfs/fs/control"
)

// counting is a shelf that counts the questions for its status, and ends the asker's time at one of them.
type counting struct {
	shelf
	mu    sync.Mutex
	asked int
	at    map[int]func() // by the number of the question
	loss  *control.Loss
}

func (c *counting) Status(context.Context) (*control.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if do := c.at[c.asked]; do != nil {
		do()
	}
	return &control.Status{Mode: control.ModeServed, OpenFiles: c.asked, Loss: c.loss}, c.fail
}

// A watch asks until it is interrupted, and its exit code is that of the last answer.
func TestStatusWatch(t *testing.T) {
	lost := &control.Loss{Files: make([]control.Failure, 1)}
	for _, tc := range []struct {
		name string
		args []string
		loss *control.Loss
		code int
	}{
		{"as text", nil, nil, exit.OK},
		{"as text, with bytes lost", nil, lost, exit.Failure},
		{"as JSON", []string{"--json"}, nil, exit.OK},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		c := &counting{loss: tc.loss}
		c.at = map[int]func(){4: cancel}
		store := serveVolume(t, c)
		var out, errs bytes.Buffer
		code := run(ctx, append(tc.args, "status", "--watch=100ms", store), &out, &errs)
		cancel()
		if code != tc.code || (errs.Len() > 0) != (tc.loss != nil) {
			t.Errorf("%s: exit %d, %s", tc.name, code, &errs)
		}
		parts := strings.Split(strings.TrimSpace(out.String()), "\n\n")
		if tc.args != nil {
			parts = strings.Split(strings.TrimSpace(out.String()), "\n")
			for _, p := range parts {
				if !json.Valid([]byte(p)) {
					t.Errorf("%s: %q is no JSON", tc.name, p)
				}
			}
		}
		if len(parts) < 3 {
			t.Errorf("%s: %d answers\n%s", tc.name, len(parts), &out)
		}
	}
}

func TestStatusWatchRefuses(t *testing.T) {
	store := serveVolume(t, &counting{})
	for _, every := range []string{"0s", "1ms", "-5s", "often"} {
		if code, _, errs := command(t, "status", "--watch="+every, store); code != exit.Usage {
			t.Errorf("%s: exit %d, %s", every, code, errs)
		}
	}
	if code, _, _ := command(t, "status", "--watch", store+"/nothing"); code == exit.OK {
		t.Error("a watch of nothing began")
	}
}

// On a terminal the answers stand in one place. While there is none, that is said.
func TestStatusWatchOnTerminal(t *testing.T) {
	x := texttest.New(t, 100, 40)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &counting{}
	c.at = map[int]func(){2: func() { c.fail = control.Invalid("not now") }, 3: func() { c.fail = nil }}
	store := serveVolume(t, c)
	done := make(chan int, 1)
	go func() { done <- run(ctx, []string{"status", "--watch=100ms", store}, x.File, &bytes.Buffer{}) }()
	x.Await(t, "three answers", func(said string) bool {
		return strings.Contains(said, "open files  1") && strings.Contains(said, "no answer\x1b[0m: not now") &&
			strings.Contains(said, "open files  3")
	})
	cancel()
	select {
	case code := <-done:
		if code != exit.OK {
			t.Errorf("exit %d", code)
		}
	case <-time.After(time.Minute):
		t.Fatal("the watch does not end")
	}
	if said := x.End(); strings.Count(said, "\x1b[?1049h") != 1 || strings.Count(said, "\x1b[?1049l") != 1 {
		t.Errorf("%q", said)
	}
}
