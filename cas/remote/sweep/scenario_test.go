package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/names"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/objects/objectstest"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/sweep"
	"ckptfs/cas/remote/writer"
)

const (
	alice record.Writer = "alice.00000001"
	bob   record.Writer = "bob.00000002"
	carol record.Writer = "carol.00000003"
)

var (
	remoteID = record.ID{1}
	day      = time.Unix(1_800_000_000, 0)
)

// library is the local store of all machines: files of chunks that are named by words.
type library struct {
	*objectstest.Store
	mu     sync.Mutex
	hashes map[string]cas.Hash
}

var local = library{Store: objectstest.New(1), hashes: map[string]cas.Hash{}}

// file is an entry for a file of some chunks: "shared" lies in a data object, others are stored against it.
func (l *library) file(path string, words ...string) record.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var chunks []cas.Hash
	for _, w := range words {
		chunks = append(chunks, l.hash(w, func() cas.Hash {
			if w == "shared" {
				return l.Alone(cas.Chunk, 33<<10)
			}
			return l.Delta(cas.Chunk, 100, l.hashes["shared"])
		}))
	}
	manifest := l.hash(fmt.Sprint("of ", words), func() cas.Hash { return l.File(nil, chunks) })
	return record.Entry{Path: path, Mode: 0o644, File: &record.File{Size: 1, Manifest: manifest}}
}

func (l *library) hash(name string, make func() cas.Hash) cas.Hash {
	if _, made := l.hashes[name]; !made {
		l.hashes[name] = make()
	}
	return l.hashes[name]
}

// machine is a local store that publishes.
type machine struct {
	id     record.Writer
	state  *writer.Mem
	random io.Reader                   // the same each time
	whole  map[cas.Hash]*objects.Whole // what an index told it of, some time ago
}

// change is what a machine publishes at once.
type change struct {
	entries []record.Entry
	gone    []writer.Gone
}

// said is what a machine wants to be seen.
type said struct {
	by    record.Writer
	entry record.Entry
	acked bool
}

// scene is a remote with machines, and what they were told.
type scene struct {
	world
	machines map[record.Writer]*machine
	said     []said                            // in the order in which it was begun
	again    []func(ctx context.Context) error // what processes do that are started once more
	decoded  map[bucket.Version]*record.Head
	tables   map[record.ID][]record.Entry
	mutated  bool // only what heads refer to counts
}

func newScene(ids ...record.Writer) *scene {
	s := &scene{machines: map[record.Writer]*machine{}, decoded: map[bucket.Version]*record.Head{},
		tables: map[record.ID][]record.Entry{}}
	s.mem = &bucket.Mem{Now: func() time.Time { return day }}
	s.check, s.final, s.world.disk = s.holds, s.ends, s.disk
	for i, id := range ids {
		m := &machine{id: id, state: &writer.Mem{}}
		m.random = newDraws(byte(i + 1))
		s.machines[id] = m
	}
	return s
}

// draws gives bytes at random, and counts them.
type draws struct {
	rand.ChaCha8
	n int
}

func newDraws(seed byte) *draws { return &draws{ChaCha8: *rand.NewChaCha8([32]byte{seed})} }

func (d *draws) Read(p []byte) (int, error) {
	d.n += len(p)
	return d.ChaCha8.Read(p)
}

func (d *draws) String() string { return fmt.Sprint(d.n) }

// kept has what was made before by their names: scenes that nothing happened in yet.
var kept sync.Map

// once makes a scene for the first time, and then gives copies of it.
func once(name string, make func() *scene) *scene {
	had, ok := kept.Load(name)
	if !ok {
		had, _ = kept.LoadOrStore(name, make())
	}
	return had.(*scene).clone()
}

// clone is a copy of a scene that has no processes.
func (s *scene) clone() *scene {
	c := newScene()
	for info := range s.mem.List(context.Background(), "", "") {
		p, _, err := bucket.Read(context.Background(), s.mem, info.Key, record.MaxObject, "")
		must(err)
		_, err = c.mem.Put(context.Background(), info.Key, bucket.Bytes(p), bucket.Cond{})
		must(err)
	}
	for id, m := range s.machines {
		random := *m.random.(*draws)
		c.machines[id] = &machine{id: id, state: m.state.Clone(), random: &random}
	}
	c.said = slices.Clone(s.said)
	return c
}

// register makes a machine's head before all else.
func (s *scene) register(id record.Writer) {
	_, err := s.machines[id].register(s.mem)(context.Background())
	must(err)
	must(s.machines[id].state.SetIdentity(writer.Identity{Writer: id, Instance: record.ID{9}}))
}

func (m *machine) register(b bucket.Bucket) func(context.Context) (record.Writer, error) {
	return func(ctx context.Context) (record.Writer, error) {
		id := m.id
		for n := 0; ; n++ {
			_, err := b.Put(ctx, record.HeadKey(id), bucket.Bytes(nil), bucket.Cond{Absent: true})
			if !errors.Is(err, bucket.ErrPrecondition) && !errors.Is(err, bucket.ErrDoubt) {
				return id, err
			}
			id = m.id[:len(m.id)-1] + record.Writer("0123456789abcdef"[n+4:][:1])
		}
	}
}

// push publishes changes until they are acknowledged.
func (s *scene) push(ctx context.Context, m *machine, b bucket.Bucket, c change) error {
	return s.pushWhat(ctx, m, b, func() (change, error) { return c, nil })
}

// pushWhat is push of what is found out before each try.
func (s *scene) pushWhat(ctx context.Context, m *machine, b bucket.Bucket,
	what func() (change, error)) error {
	return s.pushBy(ctx, m, m.writer(b), what)
}

func (m *machine) writer(b bucket.Bucket) *writer.Writer {
	return writer.New(writer.Options{Bucket: b, Remote: remoteID, State: m.state, Register: m.register(b),
		Now: func() time.Time { return day }, Random: m.random, Parallel: 1})
}

// pushBy is pushWhat by a process that may have published before.
func (s *scene) pushBy(ctx context.Context, m *machine, w *writer.Writer,
	what func() (change, error)) error {
	c, err := what()
	if err != nil {
		return err
	}
	first := s.says(m.id, c)
	for {
		_, err := w.Push(ctx, &local, writer.Changes{Entries: c.entries, Gone: c.gone, Seen: seen(c),
			Look: func(context.Context) (map[cas.Hash]*objects.Whole, error) { return m.whole, nil }})
		var anew *writer.RegisteredError
		switch {
		case err == nil:
			for i := range s.said[first : first+len(c.entries)+len(c.gone)] {
				s.said[first+i].acked = true
			}
			return nil
		case !errors.As(err, &anew) && !errors.Is(err, writer.ErrUnsettled):
			return err
		}
		if c, err = what(); err != nil {
			return err
		}
		first = s.says(m.id, c)
	}
}

// says notes what a machine is about to say, and returns where. What it tried to say before, and would say
// otherwise now, stays: it may have been done.
func (s *scene) says(id record.Writer, c change) (first int) {
	first = len(s.said)
	for _, e := range c.entries {
		s.said = append(s.said, said{by: id, entry: e})
	}
	for _, g := range c.gone {
		s.said = append(s.said, said{by: id, entry: record.Entry{Path: g.Path, Kind: record.KindTombstone}})
	}
	return first
}

// seen is the highest version that who makes a change has read.
func seen(c change) int64 {
	most := int64(10)
	for i := range c.entries {
		for _, o := range c.entries[i].Over {
			most = max(most, o.Version)
		}
	}
	return most
}

// process adds a process. One that is ended is started again after all.
func (s *scene) process(id record.Writer, run func(ctx context.Context, b bucket.Bucket) error) {
	s.processes = append(s.processes, &process{name: string(id[:3]), run: run})
	s.again = append(s.again, func(ctx context.Context) error { return run(ctx, s.mem) })
}

// pusher publishes changes, one after the other.
func (s *scene) pusher(id record.Writer, changes ...change) {
	s.process(id, func(ctx context.Context, b bucket.Bucket) error {
		for _, c := range changes {
			if err := s.push(ctx, s.machines[id], b, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// daemon publishes changes, one after the other, in one process: the first of them before all else.
func (s *scene) daemon(id record.Writer, changes ...change) {
	s.process(id, func(ctx context.Context, b bucket.Bucket) error {
		m := s.machines[id]
		w := m.writer(s.mem)
		for i, c := range changes {
			if err := s.pushBy(ctx, m, w, func() (change, error) { return c, nil }); err != nil {
				return err
			}
			if i == 0 {
				w.Bucket = b
			}
		}
		return nil
	})
}

func (s *scene) collector(name record.Writer) {
	s.process(name, func(ctx context.Context, b bucket.Bucket) error { return collect(ctx, b, name) })
}

func collect(ctx context.Context, b bucket.Bucket, name record.Writer) error {
	_, err := sweep.Collect(ctx, b, sweep.Options{Remote: remoteID, Collector: name,
		Now: func() time.Time { return day }})
	return err
}

// heads are all that heads and tables hold, and the objects that these need, read without package sweep.
func (s *scene) heads() (lists [][]record.Entry, needed map[record.ID]bool, err error) {
	ctx, needed := context.Background(), map[record.ID]bool{}
	for info := range s.mem.List(ctx, record.Heads, "") {
		id, _ := record.ParseHead(info.Key)
		h := s.decoded[info.Version]
		if h == nil {
			p, _, err := bucket.Read(ctx, s.mem, info.Key, record.MaxHead, "")
			if err != nil {
				return nil, nil, err
			}
			if h, err = record.DecodeHead(id, p); err != nil {
				return nil, nil, err
			}
			s.decoded[info.Version] = h
		}
		lists = append(lists, h.Tail)
		for _, t := range h.Tables {
			needed[t.ID] = true
			if s.tables[t.ID] == nil {
				p, _, err := bucket.Read(ctx, s.mem, record.ClassTable.Key(t.ID), record.MaxObject, "")
				if err != nil {
					return nil, nil, fmt.Errorf("a head needs it: %w", err)
				}
				if s.tables[t.ID], _, err = record.DecodeTable(id, t.ID, p); err != nil {
					return nil, nil, err
				}
			}
			lists = append(lists, s.tables[t.ID])
		}
	}
	for _, held := range names.Paths(lists...) {
		for _, e := range names.Merge(held).Tips {
			if e.File != nil {
				for _, id := range e.File.Deps {
					needed[id] = true
				}
			}
		}
	}
	return lists, needed, nil
}

// objects are those that are there.
func (s *scene) objects() map[record.ID]string {
	there := map[record.ID]string{}
	for _, class := range []string{"d/", "i/", "m/", "t/"} {
		for info := range s.mem.List(context.Background(), class, "") {
			if _, id, ok := record.ParseObject(info.Key); ok {
				there[id] = info.Key
			}
		}
	}
	return there
}

// holds is I1: what heads refer to is there.
func (s *scene) holds() error {
	_, needed, err := s.heads()
	if err != nil {
		return err
	}
	there := s.objects()
	for id := range needed {
		if there[id] == "" {
			return fmt.Errorf("a name needs %s, and it is gone", id)
		}
	}
	return nil
}

// ends holds that what was acknowledged is there, that whoever was ended can go on, and that two collections
// leave nothing that nobody names.
func (s *scene) ends() error {
	if s.mutated {
		return nil
	}
	for _, p := range s.processes {
		if p.err != nil && !p.dead {
			return fmt.Errorf("%s: %w", p.name, p.err)
		}
	}
	if err := s.acknowledged(); err != nil {
		return err
	}
	for i, p := range s.processes {
		if p.dead {
			if err := s.again[i](context.Background()); err != nil {
				return fmt.Errorf("%s, again: %w", p.name, err)
			}
		}
	}
	for range 2 {
		if err := collect(context.Background(), s.mem, carol); err != nil {
			return err
		}
	}
	if err := s.holds(); err != nil {
		return err
	}
	if err := s.acknowledged(); err != nil {
		return err
	}
	return s.clean()
}

// clean holds that there is no object that no name needs.
func (s *scene) clean() error {
	_, needed, err := s.heads()
	if err != nil {
		return err
	}
	for id, key := range s.objects() {
		if !needed[id] {
			return fmt.Errorf("two collections left %s", key)
		}
	}
	return nil
}

// acknowledged holds that each entry that was acknowledged has its name, or is in conflict with what has it,
// unless somebody meant to replace it; that what was deleted is gone; and that all files can be read.
func (s *scene) acknowledged() error {
	lists, _, err := s.heads()
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, n := range names.Tree(lists...) {
		for _, e := range append(slices.Clone(n.Conflicts), n.Name) {
			if e == nil || e.File == nil {
				continue
			}
			there[content(e)], there[e.Path] = true, true
			if err := local.Read(context.Background(), s.mem, e.File); err != nil {
				return fmt.Errorf("%s: %w", e.Path, err)
			}
		}
	}
	for i, x := range s.said {
		gone := x.entry.Kind == record.KindTombstone
		switch {
		case !x.acked || s.replaced(i):
		case gone && there[x.entry.Path]:
			return fmt.Errorf("the deletion of %s was acknowledged, and it is there", x.entry.Path)
		case x.entry.File != nil && !there[content(&x.entry)]:
			return fmt.Errorf("%s was acknowledged, and is lost", x.entry.Path)
		}
	}
	return nil
}

// replaced reports whether somebody else said something over what was said, or the same machine later.
func (s *scene) replaced(i int) bool {
	x := s.said[i]
	return slices.ContainsFunc(s.said[i+1:], func(y said) bool {
		return y.by == x.by && y.entry.Path == x.entry.Path
	}) || slices.ContainsFunc(s.said, func(y said) bool {
		// It may have registered again.
		over := func(o record.Replaced) bool { return o.Writer[:3] == x.by[:3] }
		return y.entry.Path == x.entry.Path && slices.ContainsFunc(y.entry.Over, over)
	})
}

func content(e *record.Entry) string {
	if e.File == nil {
		return fmt.Sprint(e.Path, e.Kind)
	}
	return fmt.Sprint(e.Path, e.File.Manifest.Short())
}
