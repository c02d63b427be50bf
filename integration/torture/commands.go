package main

import (
	"errors"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"ckptfs/integration/daemon"
)

// known are the commands that the program has.
func known(bin string) map[string]bool {
	out, _ := exec.Command(bin, "--help").CombinedOutput()
	have := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+)\s`).FindAllSubmatch(out, -1) {
		have[string(m[1])] = true
	}
	return have
}

// runCommands runs commands on the mount until stop, some of them killed in the middle.
func (r *run) runCommands(rng *rand.Rand, stop <-chan struct{}) {
	all := [][]string{{"sync"}, {"sync"}, {"evict"}, {"evict"}, {"hydrate"}, {"stats"}, {"status"}}
	for _, more := range [][]string{{"prune", "--grace", "0"}, {"compact"}, {"check"}} {
		if r.commands[more[0]] {
			all = append(all, more)
		}
	}
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rng.Int64N(int64(200 * time.Millisecond)))):
		}
		args := append(append([]string(nil), all[rng.IntN(len(all))]...), r.d.Dir)
		if rng.IntN(5) == 0 {
			r.killCommand(args, time.Duration(rng.Int64N(int64(60*time.Millisecond))))
			continue
		}
		r.note("ckptfs %s", strings.Join(args, " "))
		_, err := r.d.CLI(args...)
		var exit *daemon.ExitError
		if errors.As(err, &exit) && !r.dying.Load() {
			r.judge(args, exit)
		}
		r.ran++
	}
}

// Exit statuses that are no alarm beside writers; ckptfs help exit-codes lists them all.
const (
	exitBusy    = 4
	exitPartial = 7
)

// judge tells a command that could not do all, since files are in use or came and went, from one that failed.
func (r *run) judge(args []string, exit *daemon.ExitError) {
	gone := strings.Contains(exit.Stderr, "no such file") || strings.Contains(exit.Stderr, "stale") ||
		r.outlived.Load() && strings.Contains(exit.Stderr, "went away before it answered")
	if exit.Code == exitPartial || exit.Code == exitBusy || gone {
		return
	}
	r.lose("beside a living daemon: %v", exit)
}

// killCommand runs a command and kills it.
func (r *run) killCommand(args []string, after time.Duration) {
	r.note("ckptfs %s, killed", strings.Join(args, " "))
	cmd := exec.Command(r.d.Bin, args...)
	if cmd.Start() != nil {
		return
	}
	time.Sleep(after)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	r.ran++
}
