package remote

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/simd"
	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// besideSize is the bytes of each file that is saved, and besideRate what goes to the remote in a second:
// less than what is saved, so that there is always something to push.
const (
	besideSize = 64 << 20
	besideRate = "10MB"
)

// BenchmarkBeside prints what a remote costs who does not use it: saves and reads of what is local, beside
// pushes that go on, as ratios to the same on a store without a remote; medians of alternating pairs. And the
// idle daemon's memory.
func BenchmarkBeside(b *testing.B) {
	if testing.Short() {
		b.Skip("-short")
	}
	e := mounttest.StartEngine(b)
	alone, shared := mounted(b), mounted(b, "--push-rate", besideRate)
	_, err := shared.CLI("remote", "add", e.URL("beside"), shared.Dir, "--endpoint", e.Endpoint)
	if err != nil {
		b.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{7})
	data := make([]byte, besideSize)
	saveTo := func(d *daemon.Daemon, name string) float64 {
		return seconds(b, func() error { return os.WriteFile(filepath.Join(d.Dir, name), data, 0o644) })
	}
	readFrom := func(d *daemon.Daemon, name string) float64 {
		return seconds(b, func() error {
			_, err := os.ReadFile(filepath.Join(d.Dir, name))
			return err
		})
	}
	const first = "first.bin"
	random.Read(data)
	for _, d := range []*daemon.Daemon{alone, shared} {
		saveTo(d, first)
		if _, err := d.CLI("sync", d.Dir); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := shared.CLI("sync", "--remote", shared.Dir); err != nil {
		b.Fatal(err)
	}
	fmt.Printf("%s kernels; files of %d MiB; %s a second are pushed\n", simd.Now(), besideSize>>20, besideRate)
	fmt.Printf("idle daemon: %.1f MiB without a remote, %.1f with one\n", memory(b, alone), memory(b, shared))

	const rounds = 15
	var saves, reads []float64
	for round := range rounds {
		random.Read(data)
		name := fmt.Sprintf("%d.bin", round)
		d := []*daemon.Daemon{alone, shared}
		if round%2 == 1 {
			slices.Reverse(d)
		}
		took := map[*daemon.Daemon][2]float64{}
		for _, d := range d {
			// No figure pays for the one before it. What is packed here is pushed in the background.
			if _, err := d.CLI("sync", d.Dir); err != nil {
				b.Fatal(err)
			}
			unix.Sync()
			save := saveTo(d, name)
			took[d] = [2]float64{save, readFrom(d, first)}
		}
		saves = append(saves, took[alone][0]/took[shared][0])
		reads = append(reads, took[alone][1]/took[shared][1])
	}
	said, err := shared.CLI("status", shared.Dir)
	if err != nil {
		b.Fatal(err)
	}
	row := func(what string, ratios []float64) {
		slices.SortFunc(ratios, cmp.Compare)
		fmt.Printf("%-32s %.2fx (%.2f–%.2f)\n", what, ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
	}
	row("save until close, pushes beside", saves)
	row("read, resident, pushes beside", reads)
	fmt.Print(said)
	for b.Loop() {
	}
}

// mounted is an empty store that is mounted; the test's end unmounts it.
func mounted(b *testing.B, flags ...string) *daemon.Daemon {
	dir := b.TempDir()
	d := &daemon.Daemon{Bin: mounttest.Bin, Flags: flags, Store: filepath.Join(dir, "store"),
		Dir: filepath.Join(dir, "mnt"), Log: filepath.Join(dir, "log")}
	b.Cleanup(func() {
		if err := d.Clean(); err != nil {
			b.Error(err)
		}
	})
	if err := os.Mkdir(d.Dir, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := d.Start(); err != nil {
		b.Fatal(err)
	}
	return d
}

// memory is what of a daemon's memory no file backs, in MiB.
func memory(b *testing.B, d *daemon.Daemon) float64 {
	n, err := daemon.Memory(d.DaemonPID(), "RssAnon")
	if err != nil {
		b.Fatal(err)
	}
	return float64(n) / (1 << 20)
}

// seconds is how long something takes.
func seconds(b *testing.B, f func() error) float64 {
	start := time.Now()
	if err := f(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start).Seconds()
}
