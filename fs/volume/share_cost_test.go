package volume

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	fsshared "ckptfs/fs/share/shared"
)

// asked counts requests by kind and class of object, in the order in which they began.
func (m *metered) asked() (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.log {
		op, key, _ := strings.Cut(s, " ")
		class, _, _ := strings.Cut(key, "/")
		class, _, _ = strings.Cut(class, " ")
		all = append(all, op+" "+class)
	}
	return all
}

// A mount in which nothing happens asks once a poll, and a fetch that finds nothing asks once.
func TestIdleMount(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	a.put("runs/x/1/f", []byte("f"))
	a.published("")
	count := &metered{Bucket: &c.mu}
	b := c.join("b", func(o *Options) {
		o.Remote = func(remote.Joined) (bucket.Bucket, error) { return count, nil }
		o.RemotePoll, o.Publish = time.Millisecond, true
	})
	b.eventually("the first poll is over", func() bool { return b.exists("runs/x/1") })
	had := len(count.asked())
	b.eventually("20 polls", func() bool { return len(count.asked()) > had+20 })
	for _, s := range count.asked()[had:] {
		if s != "get hint" {
			t.Errorf("%q", count.asked()[had:])
			break
		}
	}
}

// manySteps are steps of three files each, which one machine has published.
func manySteps(c *cloud, steps int) *machine {
	a := c.join("a")
	const first = "runs/x/0/model.safetensors"
	a.put(first, modelFile(c.t, "ABC"))
	a.sync()
	for i := range steps {
		dir := fmt.Sprintf("runs/x/%d", i)
		a.mkdir(dir)
		for _, name := range []string{"model.safetensors", "optimizer.pt", "scheduler.pt"} {
			if p := dir + "/" + name; p != first {
				a.link(first, p)
			}
		}
	}
	a.published("")
	return a
}

// The names of a run of 1,000 steps with 3 files each take few requests, however many steps are looked into.
func TestListingOfManySteps(t *testing.T) {
	const steps = 1000
	c := newCloud(t)
	manySteps(c, steps)
	b, count := c.joinMetered("b")
	b.fetched()
	if n := b.listed("runs/x"); n != 3*steps {
		t.Errorf("%d files", n)
	}
	// What is there, the two heads, the table, and the architecture that all models have.
	if n := len(count.asked()); n > 5 {
		t.Errorf("%d requests: %q", n, count.log)
	}
}

// listed are the files of a run, each of which a lookup finds.
func (m *machine) listed(run string) (files int) {
	m.t.Helper()
	for _, step := range m.names(run) {
		for _, name := range m.names(run + "/" + step) {
			n := m.find(run + "/" + step + "/" + name)
			if a, err := n.Attr(); err != nil || a.Size < 2048 {
				m.t.Fatalf("%s: %+v, %v", name, a, err)
			}
			m.forget(n)
			files++
		}
	}
	return files
}

// A listing has all names of a folder, also where they take longer to appear than the remote has to answer.
func TestListingOfLargeFolder(t *testing.T) {
	const files = 3000
	c := newCloud(t)
	a := c.join("a")
	a.mkdir("runs/x/1")
	for i := range files {
		a.write(fmt.Sprintf("runs/x/1/%d", i), []byte("x"))
	}
	a.published("")
	list := func(writer string) (took time.Duration) {
		t.Helper()
		b := c.join(writer)
		b.fetched()
		b.names("runs/x")
		began := time.Now()
		if n := len(b.names("runs/x/1")); n != files {
			t.Errorf("%d names of %d after %s", n, files, time.Since(began))
		}
		return time.Since(began)
	}
	took := list("b")
	defer func(was time.Duration) { fsshared.LookTimeout = was }(fsshared.LookTimeout)
	fsshared.LookTimeout = max(took/3, time.Millisecond)
	list("c")
}

// Processor time of the names of 1,000 steps with 3 files each, which appear where they are listed.
func BenchmarkListingOfStubs(b *testing.B) {
	c := newCloud(b)
	manySteps(c, 1000).close()
	var took time.Duration
	files := 0
	for b.Loop() {
		b.StopTimer()
		m := c.join("m")
		m.fetched()
		began := coreTime(b)
		b.StartTimer()
		files += m.listed("runs/x")
		b.StopTimer()
		took += coreTime(b) - began
		m.close()
		b.StartTimer()
	}
	b.ReportMetric(took.Seconds()/float64(files)*3000, "core-s/3000")
}

// coreTime is the processor time that the test took until now.
func coreTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// rounds are the round trips until the first data come: all heads are asked for at once, everything else one
// after the other. What is read ahead nobody waits for.
func (m *metered) rounds() (n int) {
	before := ""
	for _, s := range m.asked() {
		if s != before || s != "get heads" {
			n++
		}
		if before = s; s == "get d" {
			break
		}
	}
	return n
}

// The first byte of a file that another machine published takes at most five round trips of a mount that
// knows nothing of the remote yet, and two of one that knows the names.
func TestFirstByte(t *testing.T) {
	const p = "runs/x/1/model.safetensors"
	c := newCloud(t)
	a := c.join("a")
	a.put(p, baseModel(t, 1, 2, 3))
	a.published("")
	read := func(m *machine) {
		t.Helper()
		h := m.open(p, unix.O_RDONLY)
		defer m.release(h)
		if _, err := h.Read(make([]byte, 4096), 0); err != nil {
			t.Fatal(err)
		}
	}
	b, count := c.joinMetered("b")
	b.fetched()
	read(b)
	if n := count.rounds(); n > 5 {
		t.Errorf("nothing known: %d round trips: %q", n, count.log)
	}
	d, count := c.joinMetered("d")
	d.fetched()
	d.names("runs/x/1")
	count.reset()
	read(d)
	if n := count.rounds(); n > 2 {
		t.Errorf("names known: %d round trips: %q", n, count.log)
	}
}
