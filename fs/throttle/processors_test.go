package throttle

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const stat = `cpu  400 40 100 1000 60 5 5 20 7 7
cpu0 100 10 25 250 15 1 1 5 3 3
cpu1 200 20 50 500 30 2 2 10 0 0
cpu17 100 10 25 250 15 2 2 5 4 4
intr 1 2 3
cpu1 1 1 1 1 1 1 1 1 1 1
`

// Only the processors that packing may use count.
func TestUsed(t *testing.T) {
	for _, c := range []struct {
		cpus      []int
		n         int
		all, busy time.Duration
	}{
		{[]int{0, 1, 17}, 3, 1630, 530},
		{[]int{0}, 1, 407, 132},
		{[]int{1, 2}, 1, 814, 264},
		{[]int{5}, 0, 0, 0},
	} {
		var p processors
		for _, n := range c.cpus {
			p.set.Set(n)
		}
		cpus, all, busy := p.used([]byte(stat))
		if cpus != c.n || all != c.all*10*time.Millisecond || busy != c.busy*10*time.Millisecond {
			t.Errorf("%v: %d, %v, %v", c.cpus, cpus, all, busy)
		}
	}
	var p processors
	p.set.Set(0)
	for _, odd := range []string{"", "cpu", "cpu0\n", "cpu0 x y\n", "cpuidle 1\n", "\x00\xff"} {
		if _, all, busy := p.used([]byte(odd)); all != 0 || busy != 0 {
			t.Errorf("%q: %v, %v", odd, all, busy)
		}
	}
}

func TestWaited(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"some avg10=12.96 avg60=2.66 avg300=5.85 total=20069502694\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n": 20069502694 * time.Microsecond,
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n":                                                            0,
		"full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n":                                                            -1,
		"some total=x": -1, "some": -1, "": -1,
	} {
		if got := waited([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestSince(t *testing.T) {
	at := time.Now()
	a := cpuTime{at: at, cpus: 2, all: time.Hour, busy: time.Minute, own: time.Second, waiting: time.Minute}
	b := cpuTime{at: at.Add(time.Second), cpus: 2, all: time.Hour + 2*time.Second,
		busy: time.Minute + time.Second, own: 3 * time.Second / 2, waiting: time.Minute + time.Second/4}
	if l := b.since(a); l != (load{all: 2, busy: 1, own: 0.5, waiting: 0.25}) {
		t.Errorf("%+v", l)
	}
	b.waiting = -1
	if l := b.since(a); l.waiting != -1 {
		t.Errorf("%+v", l)
	}
	if l := a.since(a); l != (load{waiting: -1}) {
		t.Errorf("no time: %+v", l)
	}
}

// The kernel tells of this process and of the processors that it may use.
func TestReadProcessors(t *testing.T) {
	u, err := newProcessors().read()
	if err != nil || u.all <= 0 || u.busy <= 0 || u.busy > u.all || u.own <= 0 || u.own > u.busy {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := (&processors{set: unix.CPUSet{}}).read(); err == nil {
		t.Error("no processors are some")
	}
}

func BenchmarkReadProcessors(b *testing.B) {
	p := newProcessors()
	for b.Loop() {
		if _, err := p.read(); err != nil {
			b.Fatal(err)
		}
	}
}
