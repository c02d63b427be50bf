package sweep_test

import (
	"context"
	"maps"
	"os"
	"runtime"
	"slices"
	"testing"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/writer"
)

const dan record.Writer = "dan.00000004"

// wrapper gives the buckets of processes, by name, anew for each run.
type wrapper func() func(process string, b bucket.Bucket) bucket.Bucket

func faithful() func(string, bucket.Bucket) bucket.Bucket {
	return func(_ string, b bucket.Bucket) bucket.Bucket { return b }
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// shared has alice with a file at version 11. Others know where it lies, and have it.
func shared(ids ...record.Writer) *scene {
	s := newScene(append(ids, alice)...)
	s.register(alice)
	a := s.machines[alice]
	base := func(d disk) record.Entry { return d.file("runs/a/base", "shared", "a") }
	must(s.push(context.Background(), a, s.mem, change{entries: []record.Entry{base(a.disk)}}))
	for _, id := range ids {
		m := s.machines[id]
		base(m.disk)
		m.state = a.state.Clone()
		must(m.state.SetIdentity(writer.Identity{}))
	}
	return s
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
	return change{entries: []record.Entry{s.machines[id].disk.file("runs/b/"+string(id[:3]), "shared", word)}}
}

// copies has a machine publish alice's file under another name.
func (s *scene) copies(id record.Writer) {
	s.pusher(id, change{entries: []record.Entry{s.machines[id].disk.file("runs/b/copy", "shared", "a")}})
}

// over is an entry over alice's file.
func over(e record.Entry) change {
	e.Path, e.Over = "runs/a/base", []record.Replaced{{Writer: alice, Version: 11}}
	return change{entries: []record.Entry{e}}
}

// undeletes has a machine delete alice's file and bring it back.
func (s *scene) undeletes(id record.Writer) {
	s.pusher(id, over(record.Entry{Kind: record.KindTombstone}),
		over(s.machines[id].disk.file("", "shared", "a")))
}

// scenes are what is explored.
var scenes = map[string]func() *scene{
	"a pusher": func() *scene {
		s := shared(bob)
		s.register(bob)
		s.saves(bob)
		s.deletes()
		s.collector(carol)
		return s
	},
	"two collectors": func() *scene {
		s := shared(bob)
		s.register(bob)
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
		s := shared(bob, dan)
		s.register(bob)
		s.register(dan)
		s.undeletes(bob)
		s.copies(dan)
		s.collector(carol)
		return s
	},
	"one file twice": func() *scene {
		s := shared(bob)
		s.register(bob)
		s.pusher(bob, s.saved(bob, "first"), s.saved(bob, "second"))
		s.deletes()
		s.collector(carol)
		return s
	},
	"one name of two": func() *scene {
		s := shared(bob)
		s.register(bob)
		s.pusher(bob, over(s.machines[bob].disk.file("", "shared", "b")))
		s.pusher(alice, change{entries: []record.Entry{s.machines[alice].disk.file("runs/a/base", "other")}})
		s.collector(carol)
		return s
	},
}

// full is whether all is explored that three deviations reach, and 100,000 seeds.
var full = os.Getenv("CKPTFS_INTERLEAVINGS") == "full"

func TestInterleavings(t *testing.T) {
	budget, seeds := 1, uint64(500)
	if full {
		budget, seeds = 3, 100_000
	}
	for _, name := range slices.Sorted(maps.Keys(scenes)) {
		e := &explorer{make: scenes[name], wrap: faithful}
		e.from(nil, budget, runtime.GOMAXPROCS(0))
		runs := e.runs.Load()
		for seed := range seeds {
			e.seed(seed)
		}
		t.Logf("%s: %d runs, and %d seeds", name, runs, seeds)
		report(t, name, e)
	}
}

func report(t *testing.T, name string, e *explorer) {
	t.Helper()
	if f := e.failed.Load(); f != nil {
		for _, line := range e.tell(f) {
			t.Log(line)
		}
		t.Fatalf("%s: after %d runs: %v: %v", name, e.runs.Load(), f.err, f.chosen)
	}
}

// mutations are changes to the protocol each of which loses something.
var mutations = map[string]struct {
	scene string
	wrap  wrapper
	make  func(*scene) // changes the scene; or nil
}{
	"no stamps":                           {"a pusher", collectors(noStamps), nil},
	"no second mark":                      {"a pusher", collectors(noSecondMark), nil},
	"second mark before the stamps":       {"a pusher", collectors(secondMarkFirst), nil},
	"gc/state before the head":            {"a pusher", pusher(stateFirst), nil},
	"objects put again under their names": {"a pusher", faithful, repeatNames},
	"retry without looking":               {"a pusher", pusher(blindRetry), nil},
	"own uploads trusted":                 {"a pusher", pusher(ownTrusted), nil},
	"an engine that ignores If-Match":     {"a pusher", bends(noIfMatch, "ali", "bob", "car"), nil},
	"registering with the first commit":   {"two pushers, one registers", pusher(lateRegistration), nil},
	"undelete unchecked":                  {"undelete and copy", pusher(unchecked), nil},
	"a tombstone taken back":              {"undelete and copy", faithful, withdraw},
	"deleted before it is written down":   {"two collectors", collectors(deletesFirst), nil},
}

func repeatNames(s *scene) { s.machines[bob].random = &oldNames{} }

// withdraw has bob delete alice's file and take that back.
func withdraw(s *scene) {
	bobs := slices.IndexFunc(s.processes, func(p *process) bool { return p.name == "bob" })
	s.processes[bobs].run = func(ctx context.Context, b bucket.Bucket) error {
		m := s.machines[bob]
		if err := s.push(ctx, m, b, over(record.Entry{Kind: record.KindTombstone})); err != nil {
			return err
		}
		return s.push(ctx, m, b, change{gone: []writer.Gone{{Path: "runs/a/base", Version: 12, Bare: true}}})
	}
}

// Each mutation is caught.
func TestMutations(t *testing.T) {
	for name, m := range mutations {
		t.Run(name, func(t *testing.T) {
			runs := int64(0)
			for budget := range 4 {
				e := &explorer{wrap: m.wrap, limit: 30_000, make: func() *scene {
					s := scenes[m.scene]()
					s.mutated = true
					if m.make != nil {
						m.make(s)
					}
					return s
				}}
				e.from(nil, budget, runtime.GOMAXPROCS(0))
				runs += e.runs.Load()
				if f := e.failed.Load(); f != nil {
					t.Logf("after %d runs, %d deviations: %v", runs, budget, f.err)
					if testing.Verbose() {
						for _, line := range e.tell(f) {
							t.Log(line)
						}
					}
					return
				}
			}
			t.Errorf("not caught in %d runs", runs)
		})
	}
}
