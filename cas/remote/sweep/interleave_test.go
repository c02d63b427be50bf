package sweep_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/writer"
)

const (
	dan  record.Writer = "dan.00000004"
	erin record.Writer = "erin.00000005"
)

// wrapper gives the buckets of processes, by name; others for each run.
type wrapper func() func(process string, b bucket.Bucket) bucket.Bucket

func faithful() func(string, bucket.Bucket) bucket.Bucket {
	return func(_ string, b bucket.Bucket) bucket.Bucket { return b }
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// long is half of what makes a table of the entries of a head.
var long = strings.Repeat("x", 64<<10)

// base is alice's file.
var base = local.file("runs/a/base", "shared", "a")

// folder is an entry that needs no object.
var folder = record.Entry{Path: "runs/b", Kind: record.KindFolder, Mode: 0o755}

// shared has alice with a file at version 11. Others know where it lies, and have it.
func shared(ids ...record.Writer) *scene {
	return once(fmt.Sprint("shared", ids), func() *scene { return makeShared(ids) })
}

func makeShared(ids []record.Writer) *scene {
	s := newScene(append(ids, alice)...)
	s.register(alice)
	a := s.machines[alice]
	must(s.push(context.Background(), a, s.mem, change{entries: []record.Entry{base}}))
	for _, id := range ids {
		m := s.machines[id]
		m.state = a.state.Clone()
		must(m.state.SetIdentity(writer.Identity{}))
	}
	return s
}

// registered is shared, with heads of the others.
func registered(ids ...record.Writer) *scene {
	return once(fmt.Sprint("registered", ids), func() *scene {
		s := shared(ids...)
		for _, id := range ids {
			s.register(id)
		}
		return s
	})
}

// deletes has alice delete her file.
func (s *scene) deletes() {
	s.pusher(alice, change{gone: []writer.Gone{{Path: "runs/a/base", Version: 11, Bare: true}}})
}

// saves has a machine publish a file that shares a chunk with alice's.
func (s *scene) saves(id record.Writer) {
	s.pusher(id, s.saved(id, string(id)))
}

func (s *scene) saved(id record.Writer, word string) change {
	return change{entries: []record.Entry{local.file("runs/b/"+string(id[:3]), "shared", word)}}
}

// told has a machine know of alice's file what an index says of it, and nothing else.
func (s *scene) told(id record.Writer) {
	ctx, m := context.Background(), s.machines[id]
	m.state = &writer.Mem{}
	lists, _, err := s.heads()
	must(err)
	f := lists[0][0].File
	plans, err := (&fetch.Reader{Bucket: s.mem}).Plans(ctx, []record.Ref{f.Plan})
	must(err)
	m.whole = map[cas.Hash]*objects.Whole{f.Manifest: {Plan: plans[0], At: f.Plan}}
}

// copies has a machine publish alice's file under another name.
func (s *scene) copies(id record.Writer) {
	s.pusher(id, change{entries: []record.Entry{local.file("runs/b/copy", "shared", "a")}})
}

// over is an entry over alice's file.
func over(e record.Entry) change {
	e.Path, e.Over = "runs/a/base", []record.Replaced{{Writer: alice, Version: 11}}
	return change{entries: []record.Entry{e}}
}

// undeletes has a machine delete alice's file and bring it back.
func (s *scene) undeletes(id record.Writer) {
	s.pusher(id, over(record.Entry{Kind: record.KindTombstone}),
		over(local.file("", "shared", "a")))
}

// scenes are what is explored.
var scenes = map[string]func() *scene{
	"a pusher": func() *scene {
		s := registered(bob)
		s.saves(bob)
		s.deletes()
		s.collector(carol)
		return s
	},
	"a pusher that goes on": func() *scene {
		s := registered(bob)
		s.daemon(bob, change{entries: []record.Entry{folder}}, s.saved(bob, "b"))
		s.deletes()
		s.collector(carol)
		return s
	},
	"two collectors": func() *scene {
		s := registered(bob)
		s.saves(bob)
		s.deletes()
		s.collector(carol)
		s.collector(dan)
		return s
	},
	"two pushers, one registers": func() *scene {
		s := shared(bob, carol)
		s.register(carol)
		s.saves(bob)
		s.saves(carol)
		s.deletes()
		s.collector(dan)
		return s
	},
	"undelete and copy": func() *scene {
		s := registered(bob, dan)
		s.undeletes(bob)
		s.copies(dan)
		s.collector(carol)
		return s
	},
	"a file that an index told of": func() *scene {
		s := shared(bob)
		s.told(bob)
		s.register(bob)
		s.copies(bob)
		s.deletes()
		s.collector(carol)
		return s
	},
	"one file twice": func() *scene {
		s := registered(bob)
		s.pusher(bob, s.saved(bob, "first"), s.saved(bob, "second"))
		s.deletes()
		s.collector(carol)
		return s
	},
	"a table": func() *scene {
		s := registered(bob)
		c := s.saved(bob, "b")
		c.entries = append(c.entries, wide("runs/c"))
		s.pusher(bob, c, s.saved(bob, "c"))
		s.deletes()
		s.collector(carol)
		return s
	},
	"a copied disk": func() *scene {
		s := shared(bob, erin)
		s.register(bob)
		s.machines[erin].state = s.machines[bob].state.Clone()
		s.saves(bob)
		s.saves(erin)
		s.deletes()
		s.collector(carol)
		return s
	},
	"one name of two": func() *scene {
		s := registered(bob)
		s.pusher(bob, over(local.file("", "shared", "b")))
		s.pusher(alice, change{entries: []record.Entry{local.file("runs/a/base", "other")}})
		s.collector(carol)
		return s
	},
}

// full is whether all is explored that three preemptions reach, or two preemptions and faults, three in some
// scenes, and 100,000 seeds of each.
var full = os.Getenv("CKPTFS_INTERLEAVINGS") == "full"

// thorough are the scenes of which three preemptions and faults are explored.
var thorough = []string{"a pusher", "a file that an index told of"}

func TestInterleavings(t *testing.T) {
	scenes := all()
	for _, name := range slices.Sorted(maps.Keys(scenes)) {
		t.Run(name, func(t *testing.T) {
			deviations, seeds := 1, uint64(50)
			if testing.Short() && strings.Contains(name, "table") {
				deviations = 0
			}
			if full {
				deviations, seeds = 2, 100_000
				sound := &explorer{make: scenes[name], wrap: faithful, sound: true}
				sound.from(nil, 3, runtime.GOMAXPROCS(0))
				report(t, sound, "up to 3 preemptions")
			}
			if full && slices.Contains(thorough, name) {
				deviations = 3
			}
			e := &explorer{make: scenes[name], wrap: faithful}
			e.from(nil, deviations, runtime.GOMAXPROCS(0))
			report(t, e, fmt.Sprintf("up to %d preemptions and faults", deviations))
			random := &explorer{make: scenes[name], wrap: faithful}
			random.seeds(seeds, runtime.GOMAXPROCS(0))
			report(t, random, "seeds")
		})
	}
}

// What was chosen is all that decides what happens.
func TestRepeatable(t *testing.T) {
	for name, scene := range all() {
		e := &explorer{make: scene, wrap: faithful, forget: true}
		chosen := chosenOf(e.follow(nil, 0))
		chosen[len(chosen)/2] = 1
		chosen = chosenOf(e.follow(chosen, 0))
		first, second := e.tell(&failure{chosen: chosen}), e.tell(&failure{chosen: chosen})
		if len(first) < len(chosen) || !slices.Equal(first, second) {
			t.Errorf("%s: %q, and then %q", name, first, second)
		}
	}
}

// That no state is explored twice leaves no end out.
func TestMemory(t *testing.T) {
	for name, deviations := range map[string]int{"a file that an index told of": 2, "own undelete": 1} {
		if testing.Short() {
			deviations = 1
		}
		var ends [2]map[digest]bool
		for i, forget := range []bool{false, true} {
			e := &explorer{make: all()[name], wrap: faithful, forget: forget}
			e.from(nil, deviations, 1)
			report(t, e, name)
			ends[i] = e.ends
		}
		if len(ends[0]) < 20 || !maps.Equal(ends[0], ends[1]) {
			t.Errorf("%s: %d ends, want %d", name, len(ends[0]), len(ends[1]))
		}
	}
}

func report(t *testing.T, e *explorer, what string) {
	t.Helper()
	t.Logf("%s: %d runs, %d states", what, e.runs.Load(), len(e.seen.left))
	if f := e.failed.Load(); f != nil {
		for _, line := range e.tell(f) {
			t.Log(line)
		}
		t.Fatalf("%v: %v", f.err, f.chosen)
	}
}

// mutations are changes to the protocol each of which loses something.
var mutations = map[string]struct {
	scene func() *scene
	wrap  wrapper
}{
	"no stamps":                           {scenes["a pusher"], collectors(noStamps)},
	"no second mark":                      {scenes["a pusher"], collectors(noSecondMark)},
	"second mark before the stamps":       {scenes["a pusher"], collectors(secondMarkFirst)},
	"gc/state before the head":            {scenes["a pusher"], pusher(stateFirst)},
	"objects put again under their names": {namesRepeated, faithful},
	"retry without looking":               {scenes["a pusher"], pusher(blindRetry)},
	"own uploads trusted":                 {scenes["a pusher"], pusher(ownTrusted)},
	"an engine that ignores If-Match":     {scenes["a pusher"], bends(noIfMatch, "ali", "bob", "car")},
	"registering with the first commit":   {scenes["two pushers, one registers"], pusher(lateRegistration)},
	"epochs of meanwhile not looked at":   {scenes["a pusher that goes on"], pusher(unchecked)},
	"undelete unchecked":                  {scenes["undelete and copy"], pusher(unchecked)},
	"an index trusted":                    {scenes["a file that an index told of"], pusher(unchecked)},
	"a tombstone taken back":              {tombstoneWithdrawn, faithful},
	"a repair that reads no epochs":       {maintained["a repair"], bends(noEpochs, "eri")},
}

func namesRepeated() *scene {
	s := scenes["a pusher"]()
	s.machines[bob].random = &oldNames{}
	return s
}

// tombstoneWithdrawn has bob delete alice's file and take that back, while she does something else.
func tombstoneWithdrawn() *scene {
	s := registered(bob)
	s.pusher(bob, over(record.Entry{Kind: record.KindTombstone}),
		change{gone: []writer.Gone{{Path: base.Path, Version: 12, Bare: true}}})
	s.collector(carol)
	s.pusher(alice, change{entries: []record.Entry{local.file("runs/a/else", "else")}})
	return s
}

// Each mutation is caught by what heads refer to.
func TestMutations(t *testing.T) {
	for name, m := range mutations {
		t.Run(name, func(t *testing.T) {
			runs := int64(0)
			for budget := range 4 {
				e := &explorer{wrap: m.wrap, make: func() *scene {
					s := m.scene()
					s.mutated = true
					return s
				}}
				e.from(nil, budget, runtime.GOMAXPROCS(0))
				runs += e.runs.Load()
				if f := e.failed.Load(); f != nil {
					t.Logf("after %d runs, %d deviations: %v", runs, budget, f.err)
					return
				}
			}
			t.Errorf("not caught in %d runs", runs)
		})
	}
}

// leg has a process run until it waits to do one of some things.
type leg struct {
	process string
	until   []string // requests; none: to its end
}

func run(process string, until ...string) leg { return leg{process, until} }

// script is a world that runs as it is told, and then one process after the other.
func (s *scene) script(wrap wrapper, legs ...leg) error {
	_, err := s.run(wrap(), func(_ int, options []option) int {
		for len(legs) > 0 {
			for i, o := range options {
				p := s.processes[max(0, o.process)]
				if o.process < 0 || o.mode != done || p.name != legs[0].process {
					continue
				}
				r := p.waiting
				if !slices.ContainsFunc(legs[0].until, func(u string) bool {
					return strings.HasPrefix(r.op+" "+r.key, u)
				}) {
					return i
				}
			}
			legs = legs[1:]
		}
		return 0
	})
	return err
}

// Two collectors that finish one epoch read different heads, and want to delete different objects. If they
// did so before one of the two is written down, who reads it would rely on what the other deletes.
func TestTwoFinishOneEpoch(t *testing.T) {
	try := func(wrap wrapper) error {
		s := registered(bob, erin)
		undone := change{gone: []writer.Gone{{Path: "runs/b/bob", Version: 11, Bare: true}}}
		s.pusher(bob, s.saved(bob, "b"), undone)
		s.deletes()
		s.collector(carol)
		s.collector(dan)
		s.saves(erin)
		return s.script(wrap,
			run("bob", "put heads/"), // relies on alice's object
			run("ali"),               // deletes her file
			run("car", "put gc/state"),
			run("car", "list heads/"), // her object is condemned
			run("bob", "get gc/state"),
			run("bob", "put heads/"),
			run("car", "put gc/e/"),           // it is live, since bob's file needs it
			run("bob"),                        // he deletes that
			run("dan", "put gc/e/", "delete"), // it is not live
			run("car"),
			run("eri"), // may rely on it
		)
	}
	if err := try(faithful); err != nil {
		t.Error(err)
	}
	if err := try(bends(deletesFirst, "dan")); err == nil {
		t.Error("deleting first is not caught")
	}
}
