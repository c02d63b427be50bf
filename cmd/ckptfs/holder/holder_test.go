package holder

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Before Hold the daemon's end is the holder's.
func TestEndBeforeHold(t *testing.T) {
	for _, code := range []int{0, 3, ExitUpgrade} {
		f := start(t, config{})
		p := f.next()
		if p.Takes {
			t.Error("the first daemon takes something over")
		}
		p.do(order{Op: "ready"})
		p.exit(code)
		f.ends(code, false)
	}
	f := start(t, config{})
	f.next().kill()
	f.ends(137, false)
}

// After Hold exit code 0 is an end, too.
func TestEndInOrder(t *testing.T) {
	f := start(t, config{})
	f.first().kill()
	p := f.next()
	p.do(order{Op: "ready"})
	p.exit(0)
	f.ends(0, false)
}

// The next daemon has the device, the memory and what was kept, and knows how the last one ended.
func TestTake(t *testing.T) {
	f := start(t, config{})
	p := f.first()
	p.do(order{Op: "keep", ID: 7, N: 2, Text: "first"})
	p.do(order{Op: "keep", ID: 1 << 63, N: 1, Text: "first"})
	p.do(order{Op: "memory", Text: "was here: 1"})
	before := time.Now()
	p.kill()
	p = f.next()
	past := time.Since(before)
	want := map[uint64]string{7: "first 7", 8: "first 8", 1 << 63: "first 9223372036854775808"}
	if !p.Takes || p.Memory != "was here: 1" || !maps.Equal(p.Kept, want) {
		t.Errorf("taken over: %+v", p.hello)
	}
	if !p.Status.Signaled() || p.Status.Signal() != unix.SIGKILL || p.Tries != 0 {
		t.Errorf("status %#x after %d tries", p.Status, p.Tries)
	}
	if p.Ended <= 0 || p.Ended > past || p.Unserved != 0 {
		t.Errorf("ended %v and %v ago, at most %v", p.Ended, p.Unserved, past)
	}
	p.do(order{Op: "device", Text: "it writes"})
	b := make([]byte, 100)
	if n, err := unix.Read(f.reader, b); err != nil || string(b[:n]) != "it writes" {
		t.Errorf("device: %q, %v", b[:max(0, n)], err)
	}
	p.do(order{Op: "ready"})
	p.do(order{Op: "memory", Text: "was here: 2"})
	p.exit(4)
	if p = f.next(); p.Status.ExitStatus() != 4 || p.Memory != "was here: 2" {
		t.Errorf("taken over: %+v", p.hello)
	}
	if p.Tries != 0 || p.Unserved != 0 {
		t.Errorf("%d tries, %v, %v", p.Tries, p.Ended, p.Unserved)
	}
}

// A thousand descriptors over many lives, replaced and dropped.
func TestKeep(t *testing.T) {
	f := start(t, config{})
	p := f.first()
	want := map[uint64]string{}
	for life := range 5 {
		if got := p.Kept; life > 0 && !maps.Equal(got, want) {
			t.Fatalf("life %d: %d descriptors, not %d: %v", life, len(got), len(want), got)
		}
		if life == 0 {
			p.do(order{Op: "keep", ID: 0, N: 1000, Text: "old"})
			for id := range uint64(1000) {
				want[id] = fmt.Sprintf("old %d", id)
			}
		}
		text, at := fmt.Sprintf("life %d", life), uint64(100*life)
		p.do(order{Op: "keep", ID: at, N: 60, Text: text})
		p.do(order{Op: "drop", ID: at + 50, N: 50})
		p.do(order{Op: "drop", ID: 5000, N: 3}) // nothing
		for id := at; id < at+100; id++ {
			want[id] = fmt.Sprintf("%s %d", text, id)
			if id >= at+50 {
				delete(want, id)
			}
		}
		p.do(order{Op: "ready"})
		p.kill()
		p = f.next()
	}
	// The holder has no more of them than that, once it has closed what was in between.
	if n := len(files(strconv.Itoa(f.holder.Pid))); n > len(want)+20 {
		t.Errorf("the holder has %d descriptors for %d", n, len(want))
	}
}

// What a daemon said just before its end counts, though the holder reads it only after that.
func TestLastWords(t *testing.T) {
	f := start(t, config{})
	p := f.first()
	p.do(order{Op: "keep", ID: 1, N: 1, Text: "early"})
	f.signal(unix.SIGSTOP)
	until(t, "the holder is stopped", func() bool { return state(f.holder.Pid) == "T" })
	p.send(order{Op: "last words", ID: 10, N: 50, Text: "late"})
	p.gone()
	f.signal(unix.SIGCONT)
	p = f.next()
	if len(p.Kept) != 50 || p.Kept[10] != "late 10" || p.Kept[59] != "late 59" {
		t.Errorf("kept: %v", p.Kept)
	}
}

// A full socket holds the daemon up until the holder reads.
func TestFullSocket(t *testing.T) {
	f := start(t, config{})
	p := f.first()
	f.signal(unix.SIGSTOP)
	until(t, "the holder is stopped", func() bool { return state(f.holder.Pid) == "T" })
	p.send(order{Op: "keep", ID: 0, N: 2000, Text: "many"})
	queued := -1
	until(t, "the daemon waits", func() bool { // it has as many descriptors in two looks
		was := queued
		queued = inFlight(p.PID)
		return queued == was && blocked(p.PID)
	})
	f.signal(unix.SIGCONT)
	var a answer
	if err := p.in.Decode(&a); err != nil || a.Err != "" {
		t.Fatal(err, a.Err)
	}
	p.kill()
	if p = f.next(); len(p.Kept) != 2000 {
		t.Errorf("%d are kept", len(p.Kept))
	}
}

func inFlight(pid int) int { return len(files(strconv.Itoa(pid))) }

// blocked tells whether a thread of the process waits for a socket's buffer.
func blocked(pid int) bool {
	calls, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	for _, c := range calls {
		b, _ := os.ReadFile(c)
		if nr, _, _ := strings.Cut(string(b), " "); nr == strconv.Itoa(unix.SYS_SENDMSG) {
			return true
		}
	}
	return false
}

// The holder leaves descriptors for a start, and says rather nothing of an id than something old.
func TestNoDescriptorLeft(t *testing.T) {
	f := start(t, config{NoFile: 100})
	p := f.first()
	p.do(order{Op: "keep", ID: 0, N: 200, Text: "new"})
	p.do(order{Op: "keep", ID: 0, N: 1, Text: "newer"}) // takes the place that it gives up
	p.kill()
	p = f.next()
	if n := len(p.Kept); n < 50 || n > 100-spare || p.Kept[0] != "newer 0" || p.Kept[199] != "" {
		t.Errorf("%d are kept: %v", n, p.Kept)
	}
	p.kill()
	f.next()
}

// Daemons that are not ready are started again more and more slowly, and not for ever.
func TestGiveUp(t *testing.T) {
	f := start(t, config{})
	f.first().kill()
	for i := range 9 {
		p := f.next()
		if p.Tries != i || (p.Unserved > 0) != (i > 0) {
			t.Errorf("daemon %d: %d tries, %v, %v", i, p.Tries, p.Ended, p.Unserved)
		}
		p.exit(5)
	}
	p := f.next() // the tenth
	p.do(order{Op: "ready"})
	p.exit(5)
	for i := range 10 {
		if p = f.next(); p.Tries != i {
			t.Errorf("daemon %d after one that was ready: %d tries", i, p.Tries)
		}
		p.exit(6)
	}
	f.ends(6, true)
	for _, want := range []string{"gave up: 10 daemons", "level=ERROR", "it is detached", "exit code 6"} {
		if out := f.said(); !strings.Contains(out, want) {
			t.Errorf("it says %q, and not %q", out, want)
		}
	}
}

// The cause may end: so many that were not ready are no reason to give up before the time is over.
func TestGoesOn(t *testing.T) {
	f := start(t, config{Tries: 2, First: 1, Longest: 1, Total: time.Hour})
	f.first().kill()
	for range 10 {
		f.next().kill()
	}
	p := f.next()
	p.do(order{Op: "ready"})
	p.exit(0)
	f.ends(0, false)
}

// One that asks for the end does not wait for the time, also while no daemon can be started.
func TestGiveUpAsked(t *testing.T) {
	f := start(t, config{Tries: 2, First: 1, Longest: 1, Total: time.Hour})
	f.first().kill()
	for range 3 {
		f.next().kill()
	}
	last := f.next()
	f.signal(unix.SIGTERM)
	for code := -1; code < 0; { // it may start another one before it has the signal
		last.kill()
		_ = f.ln.SetDeadline(time.Now().Add(100 * time.Millisecond))
		if c, err := f.ln.AcceptUnix(); err == nil {
			last = f.met(c)
		}
		select {
		case code = <-f.ended:
		default:
		}
	}
	if _, err := os.Stat(f.dir + "/gaveup"); err != nil {
		t.Error("it did not give up")
	}

	exe := program(t)
	f = start(t, config{Tries: 2, First: 1, Longest: time.Millisecond, Total: time.Hour, Exe: exe})
	p := f.first()
	if err := os.Chmod(exe, 0); err != nil {
		t.Fatal(err)
	}
	p.kill()
	until(t, "it is told", func() bool { return strings.Contains(f.said(), "cannot be started") })
	f.signal(unix.SIGTERM)
	f.ends(137, true)
}

func TestPatience(t *testing.T) {
	var got []time.Duration
	var since time.Duration
	usual := patience{}.orUsual()
	for failures := 0; ; failures++ {
		wait, ok := usual.next(failures, since, false)
		if !ok {
			break
		}
		since += wait
		got = append(got, wait/time.Millisecond)
	}
	want := []time.Duration{0, 50, 100, 200, 400, 800, 1600, 3200, 4000, 4000, 4000}
	if !slices.Equal(got[:len(want)], want) {
		t.Errorf("waits %d ms, not %d", got, want)
	}
	if since < 2*time.Minute || since > 2*time.Minute+usual.most {
		t.Errorf("it gives up after %v", since)
	}
	if _, ok := usual.next(9, time.Hour, false); !ok {
		t.Error("nine failures are enough")
	}
	if _, ok := usual.next(10, 0, true); ok {
		t.Error("ten are not enough for one that asks for the end")
	}
	if _, ok := usual.next(9, time.Hour, true); !ok {
		t.Error("nine are enough for one that asks for the end")
	}
	if _, ok := usual.next(0, time.Hour, true); !ok {
		t.Error("a ready one counts as a failure")
	}
}

func TestPatienceOfTests(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 2 * time.Minute, "3s": 3 * time.Second, "-3s": 2 * time.Minute,
	} {
		t.Setenv(patienceEnv, text)
		if got := Patience(); got != want || (patience{}).orUsual().total != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// When the mount is gone there is nothing to do, whatever the daemon's end.
func TestGone(t *testing.T) {
	f := start(t, config{})
	p := f.first()
	f.hangUp()
	p.do(order{Op: "keep", ID: 1, N: 1}) // it goes on meanwhile
	p.kill()
	f.ends(137, false)

	f = start(t, config{Tries: 10, First: time.Hour, Longest: time.Hour, Total: time.Hour})
	f.first().kill()
	f.next().exit(9) // an hour's wait
	f.hangUp()
	f.ends(9, false)
}

// Each signal arrives once.
func TestSignals(t *testing.T) {
	f := start(t, config{})
	p := f.next()
	f.signal(unix.SIGINT) // at once: the start can be called off
	p.signals("interrupt")
	p.do(order{Op: "hold", Text: f.device()})
	p.do(order{Op: "ready"})
	f.signal(unix.SIGTERM)
	p.signals("interrupt", "terminated")
	p.do(order{Op: "keep", ID: 1, N: 1})
	p.exit(0)
	f.ends(0, false)
}

// A signal while there is no daemon, or one that is not ready, waits for Ready.
func TestSignalBetween(t *testing.T) {
	f := start(t, config{})
	f.first().kill()
	p := f.next()
	f.signal(unix.SIGTERM)
	p.signals()
	p.exit(1)
	p = f.next()
	p.signals()
	p.do(order{Op: "ready"})
	p.signals("terminated")

	f = start(t, config{Tries: 10, First: time.Second, Longest: time.Second, Total: time.Hour})
	f.first().kill()
	f.next().kill() // a second's wait
	f.signal(unix.SIGTERM)
	p = f.next()
	p.signals()
	p.do(order{Op: "ready"})
	p.signals("terminated")
}

// A signal holds until the mount is gone; one that dealt with it ends for an upgrade.
func TestSignalHolds(t *testing.T) {
	f := start(t, config{})
	p := f.first()
	f.signal(unix.SIGTERM)
	p.signals("terminated")
	p.kill()
	p = f.next()
	p.do(order{Op: "ready"})
	p.signals("terminated")
	p.exit(ExitUpgrade)
	p = f.next()
	p.do(order{Op: "ready"})
	f.signal(unix.SIGINT)
	p.signals("interrupt")
}

// A daemon that dies of a passed signal is not started again.
func TestSignalObeyed(t *testing.T) {
	f := start(t, config{})
	p := f.first()
	p.do(order{Op: "die of signals"})
	f.signal(unix.SIGTERM)
	f.ends(143, true)
	p.gone()
}

// The next daemon can be another binary, and one that does not start is given up for the former.
func TestNext(t *testing.T) {
	f := start(t, config{Tries: 10, First: time.Hour, Longest: time.Hour, Total: time.Hour})
	other := program(t)
	p := f.first()
	if p.Exe == other {
		t.Fatal(p.Exe)
	}
	p.do(order{Op: "next", Text: other})
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		p.exit(ExitUpgrade) // at once, or it would take hours
		if p = f.next(); !strings.HasPrefix(p.Exe, other) {
			t.Fatalf("the next daemon is %s", p.Exe)
		}
		p.do(order{Op: "ready"})
	}
	p.kill()
	if p = f.next(); !strings.HasPrefix(p.Exe, other) {
		t.Fatalf("the next daemon after a kill is %s", p.Exe)
	}
}

// program is a copy of this one.
func program(t *testing.T) string {
	t.Helper()
	bin, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(path, bin, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// When no daemon can be started nobody else tells of it: once, and why.
func TestCannotStart(t *testing.T) {
	exe := program(t)
	f := start(t, config{Tries: 3, First: 1, Longest: 10 * time.Millisecond, Total: time.Hour, Exe: exe})
	p := f.first()
	if err := os.Chmod(exe, 0); err != nil {
		t.Fatal(err)
	}
	p.kill()
	until(t, "it is told", func() bool { return strings.Contains(f.said(), "cannot be started") })
	time.Sleep(200 * time.Millisecond) // more than three tries
	if err := os.Chmod(exe, 0o700); err != nil {
		t.Fatal(err)
	}
	p = f.next()
	if p.Tries < 3 {
		t.Errorf("%d tries", p.Tries)
	}
	p.do(order{Op: "ready"})
	said := f.said()
	if strings.Count(said, "cannot be started") != 1 || !strings.Contains(said, "permission denied") ||
		!strings.Contains(said, "signal: killed") {
		t.Errorf("it says %q", said)
	}
	p.exit(0)
	f.ends(0, false)
}

func TestNextDoesNotStart(t *testing.T) {
	f := start(t, config{})
	p := f.first()
	text := filepath.Join(f.dir, "text")
	if err := os.WriteFile(text, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	p.do(order{Op: "next", Text: text})
	p.exit(ExitUpgrade)
	q := f.next()
	if q.Exe != p.Exe || q.Tries != 1 {
		t.Errorf("the next daemon is %s after %d tries", q.Exe, q.Tries)
	}
	q.do(order{Op: "next", Text: "/bin/false"}) // starts, and is not ready
	q.do(order{Op: "ready"})
	q.exit(ExitUpgrade)
	r := f.next()
	if r.Exe != p.Exe || r.Tries != 1 || r.Status.ExitStatus() != 1 {
		t.Errorf("the next daemon is %s after %d tries, and status %#x", r.Exe, r.Tries, r.Status)
	}
}

// The daemon goes on without its holder.
func TestHolderKilled(t *testing.T) {
	f := start(t, config{})
	f.first().kill()
	p := f.next()
	p.do(order{Op: "ready"})
	f.signal(unix.SIGKILL)
	f.ends(137, false)
	p.do(order{Op: "lost"})
	p.do(order{Op: "device", Text: "still here"})
	p.send(order{Op: "keep", ID: 1, N: 1})
	var a answer
	if err := p.in.Decode(&a); err != nil || a.Err != ErrLost.Error() {
		t.Errorf("Keep says %q, %v", a.Err, err)
	}
}

// The holder is not to be killed when memory runs out, its daemons are as before. The second value stands in
// for the real one, which takes a right that root need not have.
func TestOOMScore(t *testing.T) {
	score := func(pid string) string {
		b, err := os.ReadFile("/proc/" + pid + "/oom_score_adj")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	before := score("self")
	for _, want := range []string{"-1000", "700"} {
		f := start(t, config{OOM: want})
		holder := strconv.Itoa(f.holder.Pid)
		p := f.first()
		for range 3 {
			if p.OOM != before || score(strconv.Itoa(p.PID)) != before {
				t.Errorf("a daemon's is %s, not %s", p.OOM, before)
			}
			p.kill()
			p = f.next()
		}
		if got := score(holder); got != want && (got != before || want == "700") {
			t.Errorf("the holder's is %s, not %s", got, want)
		}
	}
}

// A daemon has the descriptors that it should have, and the holder none that it does not need.
func TestDescriptors(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stray, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer stray.Close()
	f := start(t, config{Pass: 1, Quiet: true}, w, stray)
	w.Close()
	p := f.next()
	want := func(p *person, out string, n int) {
		t.Helper()
		if len(p.Files) != n || p.Files["0"] != "/dev/null" || p.Files["1"] != out || p.Files["2"] != out ||
			!strings.HasPrefix(p.Files["3"], "socket:") {
			t.Errorf("descriptors %v", p.Files)
		}
	}
	want(p, f.output.Name(), 5)
	if !strings.HasPrefix(p.Files["4"], "pipe:") {
		t.Errorf("descriptors %v", p.Files)
	}
	if p.Dir != "/" || p.Group != p.PID || !slices.Equal(p.Args, []string{"ckptfs", "mount", "a b"}) {
		t.Errorf("folder %s, group %d of %d, arguments %q", p.Dir, p.Group, p.PID, p.Args)
	}
	p.do(order{Op: "close", N: 4}) // the holder has none
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the pipe is open: %v", err)
	}
	p.do(order{Op: "hold", Text: f.device()})
	p.do(order{Op: "keep", ID: 1, N: 3})
	p.do(order{Op: "ready"})
	p.kill()
	q := f.next()
	want(q, "/dev/null", 4)
	if !slices.Contains(p.Env, firstEnv+"=1") || slices.Contains(q.Env, firstEnv+"=1") {
		t.Error("the first daemon's environment")
	}
	pid := strconv.Itoa(f.holder.Pid)
	if dir, err := os.Readlink("/proc/" + pid + "/cwd"); err != nil || dir != "/" {
		t.Errorf("the holder's folder is %s, %v", dir, err)
	}
	mine := files(pid)
	for _, fd := range []string{"0", "1", "2"} {
		if mine[fd] != "/dev/null" {
			t.Errorf("the holder's %s is %s", fd, mine[fd])
		}
	}
}

// Without Quiet the output stays where it was.
func TestNotQuiet(t *testing.T) {
	f := start(t, config{})
	f.first().kill()
	if p := f.next(); p.Files["2"] != f.output.Name() || p.Files["1"] != f.output.Name() {
		t.Errorf("descriptors %v", p.Files)
	}
}

// What a pair costs the daemon: the holder reads them at its leisure, or holds the daemon up.
func BenchmarkKeepDrop(b *testing.B) {
	for _, burst := range []int{1, 20, 1000} {
		b.Run(strconv.Itoa(burst), func(b *testing.B) {
			f := start(b, config{})
			p := f.first()
			n := (b.N + burst - 1) / burst * burst
			a := p.do(order{Op: "bench", ID: uint64(burst), N: n})
			b.ReportMetric(float64(a.Took.Nanoseconds())/float64(n), "ns/op")
		})
	}
}
