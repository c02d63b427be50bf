package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"ckptfs/integration/recipe"

	"ckptfs/integration/mounttest"
)

// powerCuts is how many times the power of each filesystem is cut.
func powerCuts() int {
	if n, err := strconv.Atoi(os.Getenv("CKPTFS_POWERCUTS")); err == nil {
		return n
	}
	return 2
}

// TestPowerCut cuts the power of the disk that the store lies on, under writers and under packing, and with
// or without the journal's last entries. What was fsynced, file and folder, and what `ckptfs sync` said is
// durable, is there, byte for byte; what was not may be anything that a plain file might be, but it can be
// read, and no bytes are made up.
func TestPowerCut(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		t.Run(fstype, func(t *testing.T) {
			t.Parallel()
			d := mounttest.NewDisk(t, fstype, 1<<30)
			m := mounttest.PrepareOn(d)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			p := &powerCut{Mount: m, d: d, rng: rand.New(rand.NewPCG(seed, 0)), files: map[string]*durable{}}
			m.Must(os.MkdirAll(m.Store, 0o700))
			for round := range powerCuts() {
				p.round(round)
			}
			t.Logf("%d power cuts, %d operations made durable by fsync, %d by sync, %d files verified", powerCuts(), p.fsyncs, p.syncs, p.verified)
		})
	}
}

// powerCut is a store on a disk, with what is promised of it.
type powerCut struct {
	*mounttest.Mount
	d   *mounttest.Disk
	rng *rand.Rand

	mu                      sync.Mutex
	going                   bool // the power goes, or is gone
	files                   map[string]*durable
	names                   int
	fsyncs, syncs, verified int
}

// round is one life of the disk.
func (p *powerCut) round(round int) {
	t := p.T
	t.Helper()
	p.Flags = []string{"--hot-size", []string{"0", "2MiB", "1GiB"}[p.rng.IntN(3)]}
	if p.rng.IntN(2) == 0 {
		p.Flags = append(p.Flags, "--no-passthrough")
	}
	p.said("round %d: %v", round, p.Flags)
	p.Must(p.Start())
	p.verify(round)
	if round > 0 && p.rng.IntN(3) == 0 { // the power goes again, while it recovers
		p.blow()
		p.Must(p.Start())
		p.verify(round)
	}
	if len(p.files) > 150 {
		p.startOver()
	}

	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for w := range 3 {
		seed := p.rng.Uint64()
		all.Go(func() { p.write(ctx, rand.New(rand.NewPCG(seed, 1)), fmt.Sprint("w", w)) })
	}
	seed := p.rng.Uint64()
	all.Go(func() { p.commands(ctx, rand.New(rand.NewPCG(seed, 2))) })
	// Not a wait for something, but the moment of the blow.
	time.Sleep(time.Duration(500+p.rng.IntN(1500)) * time.Millisecond)
	cancel()
	p.cut()
	p.Kill() // which gives errors to the writers
	all.Wait()
	p.EndOfPower(p.d)
	p.reboot()
}

func (p *powerCut) blow() {
	p.T.Helper()
	p.cut()
	p.Kill()
	p.EndOfPower(p.d)
	p.reboot()
}

// cut cuts the power, with or without the journal's last entries.
func (p *powerCut) cut() {
	p.T.Helper()
	how := []uint32{mounttest.JournalFlushed, mounttest.JournalLost}[p.rng.IntN(2)]
	p.said("the power goes, %s", map[uint32]string{
		mounttest.JournalFlushed: "the journal is flushed", mounttest.JournalLost: "the journal's last entries are lost",
	}[how])
	p.mu.Lock()
	p.going = true
	p.mu.Unlock()
	p.Must(p.d.Cut(how))
	p.said("the power is gone")
}

// said notes for the log of a failure what happens when.
func (p *powerCut) said(format string, args ...any) { p.T.Logf(clock()+" "+format, args...) }

// reboot lets the store find another boot; or the same one, as after an error that shut the disk down.
func (p *powerCut) reboot() {
	p.going = false
	if p.rng.IntN(3) > 0 {
		p.said("another boot")
		p.AnotherBoot()
	}
}

// startOver makes what is there now durable, and forgets it.
func (p *powerCut) startOver() {
	p.T.Helper()
	for name := range p.files {
		p.Must(os.Remove(p.Path(name)))
	}
	p.Sync()
	clear(p.files)
}

// take finds a file to work on, or makes a new one.
func (p *powerCut) take(rng *rand.Rand, dir string) (name string, f *durable, made bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rng.IntN(3) > 0 {
		for name, f := range p.files { // in no order
			if filepath.Dir(name) == dir && !f.inUse && !f.mustGo && !f.mayGo {
				f.inUse = true
				return name, f, false
			}
		}
	}
	p.names++
	name = fmt.Sprintf("%s/f%d", dir, p.names)
	f = &durable{inUse: true}
	p.files[name] = f
	return name, f, true
}

// write saves, replaces, changes and removes files, some durably, until the power goes.
func (p *powerCut) write(ctx context.Context, rng *rand.Rand, dir string) {
	if os.MkdirAll(p.Path(dir), 0o755) != nil || p.fsync(p.Path()) != nil {
		return
	}
	for ctx.Err() == nil {
		name, f, made := p.take(rng, dir)
		err := p.step(rng, name, f, made)
		p.mu.Lock()
		f.inUse = false
		p.mu.Unlock()
		if err != nil {
			if ctx.Err() == nil {
				// The blow comes after cancel.
				p.T.Errorf("%s, with the power on: %v", name, err)
			}
			return
		}
	}
}

// cutKinds are all but zeros, which a cut may leave of anything.
var cutKinds = slices.DeleteFunc(slices.Clone(recipe.Kinds),
	func(k recipe.Kind) bool { return k == recipe.Zeros })

func (p *powerCut) step(rng *rand.Rand, name string, f *durable, made bool) error {
	fsync := rng.IntN(2) == 0
	r := recipe.Recipe{Kind: cutKinds[rng.IntN(len(cutKinds))], Seed: 1 + rng.Uint64N(6),
		Step: rng.Uint64N(100), Size: 1 + rng.IntN(1<<20)}
	if rng.IntN(4) == 0 {
		r.Size = 1 + rng.IntN(5000)
	}
	fresh := r.Bytes()
	p.mu.Lock()
	now := f.now()
	p.mu.Unlock()
	note := func(q []byte, torn bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		f.change(q, torn)
		f.did("to be %d bytes, torn %v, fsync %v", len(q), torn, fsync)
	}
	path := p.Path(name)
	const inPlace = os.O_RDWR
	switch action := rng.IntN(10); {
	case made || action < 2: // made, or emptied and written again
		note(fresh, true)
		return p.put(name, f, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, fresh, 0, fresh, fsync)
	case action < 5: // temp and rename
		tmp := path + ".tmp"
		if err := os.WriteFile(tmp, fresh, 0o644); err != nil {
			return err
		}
		if fsync {
			if err := p.fsync(tmp); err != nil {
				return err
			}
		}
		note(fresh, !fsync)
		if err := os.Rename(tmp, path); err != nil {
			return err
		}
		return p.made(name, f, fresh, fsync, true)
	case action < 7: // longer
		e := recipe.Edit{Off: len(now), N: 1 + rng.IntN(100_000), Seed: rng.Uint64()}
		after := e.Apply(append([]byte(nil), now...))
		note(after, false)
		return p.put(name, f, inPlace, e.Data(), len(now), after, fsync)
	case action < 9: // changed in place
		e := recipe.Edit{Off: rng.IntN(len(now) + 1), N: 1 + rng.IntN(100_000), Seed: rng.Uint64()}
		after := e.Apply(append([]byte(nil), now...))
		note(after, false)
		return p.put(name, f, inPlace, e.Data(), e.Off, after, fsync)
	default:
		p.mu.Lock()
		f.mayGo = true
		f.did("to be removed, fsync %v", fsync)
		p.mu.Unlock()
		if err := os.Remove(path); err != nil || !fsync {
			return err
		}
		if err := p.fsync(filepath.Dir(path)); err != nil {
			return err
		}
		p.promised(func() {
			f.mustGo = true
			f.did("removed durably")
			p.fsyncs++
		})
		return nil
	}
}

// put opens, writes and closes.
func (p *powerCut) put(name string, f *durable, flags int, data []byte, off int, after []byte,
	fsync bool) error {
	h, err := os.OpenFile(p.Path(name), flags, 0o644)
	if err != nil {
		return err
	}
	_, err = h.WriteAt(data, int64(off))
	if err == nil && fsync {
		err = h.Sync()
	}
	if err := errors.Join(err, h.Close()); err != nil {
		return err
	}
	return p.made(name, f, after, fsync, flags&os.O_CREATE != 0)
}

// made notes what is durable now; a name that was made or replaced is durable with its folder.
func (p *powerCut) made(name string, f *durable, after []byte, fsync, named bool) error {
	if !fsync {
		return nil
	}
	if named {
		if err := p.fsync(filepath.Dir(p.Path(name))); err != nil {
			return err
		}
	} else if p.mu.Lock(); f.base == nil || f.torn {
		// fsync of a file whose name may not be durable promises nothing yet
		p.mu.Unlock()
		if err := p.fsync(filepath.Dir(p.Path(name))); err != nil {
			return err
		}
	} else {
		p.mu.Unlock()
	}
	st, err := os.Stat(p.Path(name))
	if err != nil {
		return err
	}
	p.promised(func() {
		f.settle(after)
		f.did("durable by fsync")
		f.mtime = st.ModTime().UnixNano()
		p.fsyncs++
	})
	return nil
}

// promised has note say what is durable by the answer that came just now. When the power goes, no program
// hears an answer any more, and none is to be believed: on a filesystem that was shut down, XFS says of a
// folder that it is synced.
func (p *powerCut) promised(note func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.going {
		note()
	}
}

func (p *powerCut) fsync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// commands packs, evicts and hydrates beside the writers. What was closed before a sync began is durable when
// it says so.
func (p *powerCut) commands(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		switch rng.IntN(4) {
		case 0, 1:
			versions := map[*durable]int{}
			p.mu.Lock()
			for _, f := range p.files {
				if !f.inUse {
					versions[f] = f.version
				}
			}
			p.mu.Unlock()
			began := clock()
			if _, err := p.CLI("sync", p.Dir); err != nil {
				continue
			}
			p.promised(func() {
				for f, version := range versions {
					switch {
					case f.version != version: // changed since
					case f.mayGo:
						// Removed before or after the sync looked.
					case len(f.since) > 0:
						f.settle(f.now())
						f.did("durable by a sync that began at %s", began)
						p.syncs++
					}
				}
			})
		case 2:
			_, _ = p.CLI("evict", p.Dir)
		case 3:
			_, _ = p.CLI("hydrate", p.Dir)
		}
	}
}

// verify compares what is left with what was promised, and takes what is there for the truth from now on.
func (p *powerCut) verify(round int) {
	p.T.Helper()
	for name, f := range p.files {
		got, err := os.ReadFile(p.Path(name))
		p.verified++
		switch {
		case errors.Is(err, os.ErrNotExist):
			if f.base != nil && !f.mayGo {
				f.wrong(p.T, round, name, "gone, though it was durable")
			}
			delete(p.files, name)
			continue
		case err != nil:
			f.wrong(p.T, round, name, "%v", err)
			continue
		case f.mustGo:
			f.wrong(p.T, round, name, "it was removed durably")
		case !f.allows(got):
			f.wrong(p.T, round, name, "against what was durable: %s; %d changes since; against the last: %s",
				mounttest.Difference(f.base, got), len(f.since), mounttest.Difference(f.now(), got))
		}
		st, err := os.Stat(p.Path(name))
		p.Must(err)
		if st.Size() != int64(len(got)) {
			f.wrong(p.T, round, name, "stat says %d bytes, and there are %d", st.Size(), len(got))
		}
		if f.mtime != 0 && len(f.since) == 0 && st.ModTime().UnixNano() != f.mtime {
			f.wrong(p.T, round, name, "mtime %v, it was durable with %v", st.ModTime(), time.Unix(0, f.mtime))
		}
	}
	if p.T.Failed() {
		p.keep()
		p.T.FailNow()
	}
	p.Sync()
	for name, f := range p.files {
		got, err := os.ReadFile(p.Path(name))
		p.Must(err)
		*f = durable{}
		f.settle(got)
	}
}

// keep ends the daemon, and keeps the disk's image for who wants to look.
func (p *powerCut) keep() {
	_ = p.Clean()
	_ = p.d.Unmount()
	if kept, err := os.MkdirTemp("", "ckptfs-powercut-"); err == nil {
		if os.Rename(p.d.Image, filepath.Join(kept, "disk.img")) == nil {
			p.T.Logf("the disk is kept: %s", filepath.Join(kept, "disk.img"))
		}
	}
}
