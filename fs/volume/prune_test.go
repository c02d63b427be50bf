package volume

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/control"
	"ckptfs/fs/maintenance"
	"ckptfs/fs/tree"
)

func (r *rig) prune(o control.PruneOptions) *control.Pruned {
	r.t.Helper()
	p, err := r.Prune(context.Background(), o, nil)
	if err != nil {
		r.t.Fatalf("prune: %v", err)
	}
	return p
}

var now = control.PruneOptions{MaxUnused: 0.5}

func (r *rig) segmentBytes() int64 {
	r.t.Helper()
	n, err := maintenance.Allocated(r.Folder(), tree.SegmentsDir)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// sound fails unless a check that reads everything finds nothing.
func (r *rig) sound() {
	r.t.Helper()
	c, err := r.Check(context.Background(), control.CheckOptions{ReadData: true}, nil)
	if err != nil {
		r.t.Fatalf("check: %v", err)
	}
	for _, p := range c.Problems {
		r.t.Errorf("check: %+v", p)
	}
}

// The room of removed files is freed, and what other files share with them stays.
func TestPrune(t *testing.T) {
	r := newRig(t)
	shared := random(2<<20, 1)
	files := map[string][]byte{
		"a.safetensors": weights(t, []string{"a", "s"}, random(3<<20, 2), shared),
		"b.safetensors": weights(t, []string{"b", "s"}, random(1<<20, 3), shared),
		"c":             random(4<<20, 4),
		"d":             random(200<<10, 5),
	}
	for p, b := range files {
		r.write(p, b)
	}
	r.sync()
	r.evictAll()
	before := r.segmentBytes()
	if p := r.prune(control.PruneOptions{Grace: time.Hour, MaxUnused: 0.5}); p.DeadRecords != 0 {
		t.Errorf("nothing is old enough: %+v", p)
	}
	if p := r.prune(now); p.DeadRecords != 0 {
		t.Errorf("nothing is dead: %+v", p)
	}
	for _, p := range []string{"a.safetensors", "c"} {
		r.unlink(p)
		delete(files, p)
	}
	dry := r.prune(control.PruneOptions{DryRun: true, MaxUnused: 0.5})
	if dry.DeadRecords == 0 || r.segmentBytes() < before {
		t.Errorf("dry run: %+v", dry)
	}
	p := r.prune(now)
	if p.DeadRecords != dry.DeadRecords || p.Young+p.Damaged > 0 {
		t.Errorf("%+v, dry run %+v", p, dry)
	}
	if after := r.segmentBytes(); before-after < 6<<20 {
		t.Errorf("%d bytes before, %d after", before, after)
	}
	check := func(r *rig) {
		t.Helper()
		for p, want := range files {
			r.same(p, want)
		}
		r.sound()
	}
	check(r)
	if st, err := r.Stats(context.Background()); err != nil || st.DeadBytes > 64<<10 {
		t.Errorf("%+v, %v", st, err)
	}
	r = r.reopen()
	check(r)
	r = r.withoutIndex()
	check(r)
	r.write("again", random(4<<20, 4))
	r.packOut("again")
	r.same("again", random(4<<20, 4))
	for p := range files {
		r.unlink(p)
	}
	r.unlink("again")
	// what was hydrated just now may be held a little longer
	r.eventually("an empty store takes no room", func() bool {
		r.prune(now)
		return r.segmentBytes() <= 64<<10
	})
}

// A file that is open and has no name is in use.
func TestPruneSparesOpenFiles(t *testing.T) {
	r := newRig(t)
	data := random(600<<10, 1)
	r.write("f", data)
	r.packOut("f")
	h := r.open("f", unix.O_RDONLY)
	r.unlink("f")
	if p := r.prune(now); p.DeadRecords != 0 {
		t.Errorf("%+v", p)
	}
	r.asm.Close() // what was read ahead
	got, err := r.readHandle(h)
	if err != nil {
		t.Fatal(err)
	}
	r.equal("f", got, data)
	r.release(h)
	r.eventually("the file is gone for good", func() bool { return r.prune(now).DeadRecords > 0 })
}

// Files that get another name while the walk is under way, from where it has not been to where it has, are
// not missed.
func TestPruneOvertaken(t *testing.T) {
	for name, move := range map[string]func(r *rig){
		"rename": func(r *rig) { r.rename("z/f", "a/f") },
		"twice":  func(r *rig) { r.rename("z/f", "a/f"); r.rename("a/f", "a/g"); r.rename("a/g", "b/h") },
		"link":   func(r *rig) { r.link("z/f", "a/f"); r.unlink("z/f") },
		"directory": func(r *rig) {
			r.mkdir("z/sub")
			r.rename("z/f", "z/sub/f")
			r.rename("z/sub", "a/sub")
		},
		"exchange": func(r *rig) {
			if err := r.tryRename("z/f", "a/other", unix.RENAME_EXCHANGE); err != nil {
				r.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.passes.Workers = 1
			data, other := random(600<<10, 1), random(300<<10, 2)
			for _, d := range []string{"a", "b", "z"} {
				r.mkdir(d)
			}
			r.write("z/f", data)
			r.write("a/other", other)
			r.write("z/dead", random(500<<10, 3))
			r.sync()
			r.evictAll()
			r.unlink("z/dead")
			// The walk goes by the order of the directory: act behind the first of the two that it leaves.
			var first string
			r.names.AfterDir = func(p string) {
				if first != "" || p == "" {
					return
				}
				first = p
				if p == "z" { // the wrong way round: start again from the other side
					return
				}
				if p == "a" {
					r.names.AfterDir = nil
					move(r)
				}
			}
			p := r.prune(now)
			if first == "z" {
				t.Skip("this disk lists z before a")
			}
			if p.DeadRecords == 0 {
				t.Errorf("%+v", p)
			}
			r = r.reopen()
			found := 0
			for _, p := range []string{"z/f", "a/f", "a/g", "b/h", "a/sub/f", "a/other"} {
				if !r.exists(p) {
					continue
				}
				if got := r.read(p); string(got) == string(data) {
					found++
				} else if string(got) != string(other) {
					t.Errorf("%s has neither's bytes", p)
				}
			}
			if found != 1 {
				t.Errorf("found in %d places", found)
			}
			r.sound()
		})
	}
}

// A copy by manifest that is under way when its source goes.
func TestPruneWaitsForCopies(t *testing.T) {
	r := newRig(t)
	r.write("f", random(600<<10, 1))
	r.packOut("f")
	_, m := r.manifestOf("f")
	spans, err := m.Objects[0].Spans(r.store.Get)
	if err != nil {
		t.Fatal(err)
	}
	batch := r.store.Begin()
	looked, walked := make(chan struct{}), make(chan struct{})
	r.names.AfterDir = func(p string) {
		if p == "" {
			close(walked)
		}
	}
	go func() {
		r.content.Cloning.RLock()
		defer r.content.Cloning.RUnlock()
		close(looked) // at the source
		<-walked
		time.Sleep(20 * time.Millisecond) // for a prune that does not wait
		_, err := r.Volume.pack.Manifest(batch, m)
		if err = errors.Join(err, batch.Commit()); err != nil {
			t.Error(err)
		}
	}()
	<-looked
	r.unlink("f")
	r.prune(now)
	locs := make([]cas.Location, 1)
	for _, s := range spans {
		if err := r.store.Locate([]cas.Hash{s.Hash}, locs); err != nil || locs[0].Segment == 0 {
			t.Fatalf("a chunk of the copy is gone: %v", err)
		}
	}
	batch.Release()
	r.names.AfterDir = nil
	r.eventually("the chunks to go", func() bool { return r.prune(now).DeadRecords > 0 })
}

// When it is unknown what a file needs, nothing is removed.
func TestPruneStopsAtDamage(t *testing.T) {
	r := newRig(t)
	r.write("f", random(600<<10, 1))
	r.write("dead", random(600<<10, 2))
	r.sync()
	r.evictAll()
	r.unlink("dead")
	h, _ := r.manifestOf("f")
	r.damage(h)
	before := r.segmentBytes()
	_, err := r.Prune(context.Background(), now, nil)
	if !errors.Is(err, cas.ErrCorrupt) || !strings.Contains(err.Error(), "f: ") ||
		!strings.Contains(err.Error(), "nothing was removed") {
		t.Errorf("%v", err)
	}
	if r.segmentBytes() != before {
		t.Error("something was removed")
	}
	_ = os.Remove(r.rawPath("f")) // behind the volume's back
}

// A store that was copied without its attributes loses nothing by a prune.
func TestPruneKeepsWhatHeadersName(t *testing.T) {
	r := newRig(t)
	data := random(600<<10, 1)
	r.write("f", data)
	r.packOut("f")
	r.close()
	if err := unix.Removexattr(r.rawPath("f"), tree.XattrName); err != nil {
		t.Fatal(err)
	}
	r = openRig(t, r.dir)
	<-r.surveyed
	if p := r.prune(now); p.DeadRecords != 0 {
		t.Errorf("%+v", p)
	}
	r.close()
	rep, err := Repair(context.Background(), RepairTree, Options{Dir: r.dir, HotSize: 1 << 40}, nil)
	if err != nil || len(rep.Actions) != 1 || rep.Actions[0].Path != "f" {
		t.Fatalf("%+v, %v", rep, err)
	}
	r = openRig(t, r.dir)
	r.same("f", data)
	r.sound()
}

// Files are saved, shared, renamed, removed, evicted and read while one prune follows the other.
func TestPruneUnderLoad(t *testing.T) {
	r := newRig(t)
	for i := range 4 {
		r.mkdir(fmt.Sprintf("d%d", i))
	}
	pool := make([][]byte, 12)
	for i := range pool {
		pool[i] = random(300<<10, uint64(i))
	}
	rounds := 25
	if testing.Short() {
		rounds = 10
	}
	var mu sync.Mutex
	want := map[string][]byte{}
	var writers, others sync.WaitGroup
	stop := make(chan struct{})
	for g := range 3 {
		writers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 4))
			mine := map[string][]byte{}
			for i := range rounds {
				p := fmt.Sprintf("d%d/%d-%d", rnd.IntN(4), g, i)
				data := weights(t, []string{"x", "y"}, pool[rnd.IntN(len(pool))], pool[rnd.IntN(len(pool))])
				r.write(p, data)
				mine[p] = data
				if i%3 == 2 {
					r.sync()
				}
				for p, data := range mine {
					switch rnd.IntN(8) {
					case 0:
						r.unlink(p)
						delete(mine, p)
					case 1, 2:
						to := fmt.Sprintf("d%d/%s", rnd.IntN(4), path.Base(p))
						if to != p {
							r.rename(p, to)
							delete(mine, p)
							mine[to] = data
						}
					case 3:
						r.same(p, data)
					}
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for p, data := range mine {
				want[p] = data
			}
		})
	}
	prunes, dead := 0, int64(0)
	others.Go(func() {
		for i := 0; ; i++ {
			p, err := r.Prune(context.Background(), control.PruneOptions{MaxUnused: float64(i%3) / 2}, nil)
			if err != nil {
				t.Errorf("prune: %v", err)
				return
			}
			prunes++
			dead += p.DeadRecords
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	others.Go(func() {
		for {
			if _, err := r.Evict(context.Background(), "", nil); err != nil && !errors.Is(err, unix.ENOENT) {
				t.Errorf("evict: %v", err)
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	writers.Wait()
	close(stop)
	others.Wait()
	t.Logf("%d prunes, %d records removed", prunes, dead)
	r.sync()
	r.prune(now)
	r.evictAll()
	for p, data := range want {
		r.want(p, packed)
		r.same(p, data)
	}
	r.sound()
	r = r.withoutIndex()
	for p, data := range want {
		r.same(p, data)
	}
}

// What is being packed is not dead, and the files in the queue are told.
func TestStatsWhilePacking(t *testing.T) {
	r := newRig(t)
	r.withoutPacking()
	r.write("f", random(1<<20, 1))
	j := r.begin("f")
	s := r.stats()
	if s.DeadBytes > 64<<10 || s.PackingBytes < 1<<20 || s.Waiting.Files != 1 || s.Waiting.Bytes != 1<<20 {
		t.Errorf("while it is packed: %+v", s)
	}
	if err := j.p.Publish(j.res); err != nil {
		t.Fatal(err)
	}
}
