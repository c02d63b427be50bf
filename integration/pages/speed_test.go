package pages

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// What the pages of very many runs take: `make bench-ui` prints a table for CKPTFS_PAGES_RUNS runs of a
// hundred steps. Each has a model in every twentieth step; four of five runs begin with the fifth one's.
// Once the logs of all runs are read, each page is asked for, until it is whole, and then twenty times.
func TestSpeed(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv("CKPTFS_PAGES_RUNS"))
	if err != nil {
		t.Skip("CKPTFS_PAGES_RUNS is not set: make bench-ui sets it")
	}
	const steps, rounds, every, family = 100, 20, 20, 5
	m := mounttest.New(t)
	begin := time.Now()
	var g errgroup.Group
	g.SetLimit(4)
	for r := range runs {
		g.Go(func() error {
			for s := range steps {
				dir := m.Path("runs", fmt.Sprintf("sweep-%04d", r), fmt.Sprint(s+1))
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(dir, "metrics.json"), fmt.Appendf(nil,
					`{"val_loss": %g, "acc": %g}`, 1+math.Sin(float64(r*s)), float64(s)/steps), 0o644); err != nil {
					return err
				}
				if s%every != every-1 {
					continue
				}
				if s == every-1 && r%family > 0 {
					parent := fmt.Sprintf("runs/sweep-%04d/%d", r-r%family, steps)
					if err := unix.Setxattr(dir, "user.parent", []byte(parent), 0); err != nil {
						return err
					}
				}
				model, _ := mounttest.SafetensorsOf([]string{"embed.w", "layers.0.w", "layers.1.w"},
					[][]byte{mounttest.Noise(uint64(r/family), 8<<10), mounttest.Noise(uint64(r), 4<<10),
						mounttest.Noise(uint64(r*steps+s), 4<<10)})
				if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), model, 0o644); err != nil {
					return err
				}
			}
			return nil
		})
	}
	m.Must(g.Wait())
	fmt.Printf("%d runs of %d steps, written in %.0f s", runs, steps, time.Since(begin).Seconds())
	begin = time.Now()
	m.Sync()
	fmt.Printf(", packed %.0f s later", time.Since(begin).Seconds())
	get := client(t, serve(t, m.Dir))
	begin = time.Now()
	m.Must(daemon.Within(2*time.Minute, "the logs of all runs", func() bool {
		_, body, _ := get("/runs")
		return !strings.Contains(body, "reading the logs of runs")
	}))
	fmt.Printf("; all logs are read %.1f s after the start\n\n", time.Since(begin).Seconds())
	fmt.Println("| page | ms | least | most | the first time | whole after |\n|---|---|---|---|---|---|")
	for _, p := range []string{"/", "/runs", "/runs?sort=best", "/runs?q=99", "/run?run=sweep-0007",
		"/compare?run=sweep-0001&run=sweep-0002&run=sweep-0003", "/path?path=", "/path?path=runs",
		"/path?path=runs/sweep-0007/100", "/part/removal?path=runs/sweep-0007", "/part/ancestry?path=runs/sweep-0007/100",
		"/part/lineage", "/part/space?path=runs", "/part/space?path=runs&by=user"} {
		ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1e3) }
		begin := time.Now()
		status, body, first := get(p)
		if status != 200 {
			t.Errorf("%s: %d: %.300s", p, status, body)
		}
		whole := "–"
		for strings.Contains(body, `class="wait" role="status"`) { // a browser asks each second
			time.Sleep(time.Second)
			_, body, _ = get(p)
			whole = fmt.Sprintf("%.0f s", time.Since(begin).Seconds())
		}
		var all []time.Duration
		for range rounds {
			_, _, took := get(p)
			all = append(all, took)
		}
		slices.Sort(all)
		fmt.Printf("| `%s` | %s | %s | %s | %s | %s |\n", p, ms(all[rounds/2]), ms(all[0]), ms(all[rounds-1]), ms(first), whole)
	}
}
