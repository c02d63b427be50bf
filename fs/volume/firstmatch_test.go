package volume

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// BenchmarkFirstMatch is the first match after a kill amid changes, of 10,000 steps with a model of a hundred
// layers, its sidecar and metrics; the look at all files, which comes before, is not in it. core-ms is the
// processor time of one.
func BenchmarkFirstMatch(b *testing.B) {
	const models, inRun = 10_000, 2000
	r := newRig(b)
	layers := "xyzuvxyzuvxyzuvxyzuvxyzuvxyzuvxyzuvxyzuvxyzuvxyzuvxyzuvxyzuvxyzuvxyzuvxyzuvxyzuvxyzuvxyzuvxyzuvxyzuv"
	model := weights(b, []string{"a"}, random(70<<10, 1))
	for i := range models {
		step := fmt.Sprintf("runs/%d/%d", i/inRun, i)
		r.mkdir(step)
		at := i % len(layers)
		r.write(step+"/arch.json", chainGraph(layers[:at]+string(rune('a'+i%20))+layers[at:], false))
		r.write(step+"/metrics.json", fmt.Appendf(nil, `{"loss": %d, "quality": 0.%d}`, i, i))
		r.write(step+"/m.safetensors", model)
	}
	r.sync()
	like := control.MatchOptions{Like: "runs/0/1"}
	r.match(like)
	r.rest()
	var cpu time.Duration
	for b.Loop() {
		b.StopTimer()
		r.write("runs/0/2/metrics.json", fmt.Appendf(nil, `{"quality": %d}`, b.N))
		r = r.again()
		before := processorTime(b)
		b.StartTimer()
		if a, err := r.Match(context.Background(), like); err != nil || a.Match == nil {
			b.Fatalf("%+v, %v", a, err)
		}
		cpu += processorTime(b) - before
	}
	b.ReportMetric(float64(cpu.Milliseconds())/float64(b.N), "core-ms/op")
}

// processorTime is what this process took until now.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
