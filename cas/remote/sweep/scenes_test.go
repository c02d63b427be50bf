package sweep_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/mend"
	"ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/sweep"
)

// held reads what all heads and tables hold of a path, @archive's last.
func (s *scene) held(ctx context.Context, b bucket.Bucket, path string) (held []*record.Entry, err error) {
	var archive []record.Writer
	var writers []record.Writer
	for info, err := range b.List(ctx, record.Heads, "") {
		if err != nil {
			return nil, err
		}
		if w, _ := record.ParseHead(info.Key); w == record.ArchiveWriter {
			archive = append(archive, w)
		} else {
			writers = append(writers, w)
		}
	}
	for _, w := range append(writers, archive...) {
		entries, err := entriesOf(ctx, b, w, path)
		for errors.Is(err, bucket.ErrNotFound) { // the table: the head names another one by now, or is gone
			entries, err = entriesOf(ctx, b, w, path)
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			held = append(held, &e)
		}
	}
	return held, nil
}

// entriesOf reads what a head and its tables hold of a path.
func entriesOf(ctx context.Context, b bucket.Bucket, w record.Writer, path string) ([]record.Entry, error) {
	p, _, err := bucket.Read(ctx, b, record.HeadKey(w), record.MaxHead, "")
	if errors.Is(err, bucket.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h, err := record.DecodeHead(w, p)
	if err != nil {
		return nil, err
	}
	entries := h.Find(path)
	for _, t := range h.Tables {
		p, _, err := bucket.Read(ctx, b, record.ClassTable.Key(t.ID), record.MaxObject, "")
		if err != nil {
			return nil, err
		}
		list, _, err := record.DecodeTable(w, t.ID, p)
		if err != nil {
			return nil, err
		}
		entries = names.Union(w, entries, slices.DeleteFunc(list, func(e record.Entry) bool {
			return e.Path != path
		}))
	}
	return entries, nil
}

// changes has a machine publish an entry of alice's path, which is found out from what is held before each
// try; no entry: nothing.
func (s *scene) changes(ctx context.Context, b bucket.Bucket, id record.Writer,
	entry func(own record.Writer, held []*record.Entry) (record.Entry, bool)) error {
	m := s.machines[id]
	return s.pushWhat(ctx, m, b, func() (c change, err error) {
		held, err := s.held(ctx, b, base.Path)
		if err != nil {
			return c, err
		}
		who, err := m.state.Identity()
		if e, ok := entry(cmp.Or(who.Writer, id), held); ok {
			c.entries = []record.Entry{e}
		}
		return c, err
	})
}

// removes has a machine delete alice's file, as package share does: the tombstone tells what it removed.
func (s *scene) removes(ctx context.Context, b bucket.Bucket, id record.Writer) error {
	return s.changes(ctx, b, id, func(own record.Writer, held []*record.Entry) (record.Entry, bool) {
		m := names.Merge(held)
		gone := record.Entry{Path: base.Path, Kind: record.KindTombstone,
			Over: names.Over(own, m.Shown(), held)}
		if m.Name != nil {
			gone.Removed = &record.Removed{Time: day.UnixNano(), Entry: *m.Name}
			gone.Removed.Entry.Over = nil
		}
		return gone, true
	})
}

// brings has a machine bring back what was deleted, if it finds it.
func (s *scene) brings(ctx context.Context, b bucket.Bucket, id record.Writer) error {
	return s.changes(ctx, b, id, func(own record.Writer, held []*record.Entry) (record.Entry, bool) {
		d, ok := names.Undelete(held)
		if !ok {
			return record.Entry{}, false
		}
		return record.Entry{Path: base.Path, Mode: 0o644, Over: names.Over(own, d.Shown, held),
			File: &record.File{Size: d.Entry.File.Size, Manifest: d.Entry.File.Manifest}}, true
	})
}

// does adds a process of several things that one machine does.
func (s *scene) does(id record.Writer,
	things ...func(ctx context.Context, b bucket.Bucket, id record.Writer) error) {
	s.process(id, func(ctx context.Context, b bucket.Bucket) error {
		for _, do := range things {
			if err := do(ctx, b, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// folds adds a collector which finds all writers idle that committed before it began.
func (s *scene) folds(name record.Writer) {
	random := newDraws(name[0]) // no id twice, also not by a process that begins again
	s.process(name, func(ctx context.Context, b bucket.Bucket) error {
		_, err := sweep.Collect(ctx, b, sweep.Options{Remote: remoteID, Collector: name, Fold: month,
			Random: random, Now: func() time.Time { return day.Add(month) }})
		return err
	})
}

// wide is a folder whose entry makes a table.
func wide(path string) record.Entry {
	return record.Entry{Path: path, Kind: record.KindFolder,
		Attrs: []record.Attr{{Name: "user.a", Value: long}, {Name: "user.b", Value: long}}}
}

// archived has an @archive of as many tables as are merged with the next one.
func (s *scene) archived() {
	h := &record.Head{Remote: remoteID, Instance: record.ID{8}, Commit: record.ID{8}, Sequence: 3, Clock: 3}
	for i := range 3 {
		e := wide(fmt.Sprint("runs/old", i))
		e.Origin, e.Version = record.Writer(fmt.Sprint("gone.0000000", i)), int64(i+1)
		p, t, err := record.EncodeTable(record.ArchiveWriter, record.ID{0xa0, byte(i)}, []record.Entry{e})
		must(err)
		_, err = s.mem.Put(context.Background(), record.ClassTable.Key(t.ID), bucket.Bytes(p), bucket.Cond{})
		must(err)
		h.Tables = append(h.Tables, t)
	}
	p, err := h.Encode(record.ArchiveWriter)
	must(err)
	_, err = s.mem.Put(context.Background(), record.HeadKey(record.ArchiveWriter), bucket.Bytes(p),
		bucket.Cond{})
	must(err)
}

// drawn gives ids that differ from all others, the same in each run.
type drawn struct{ n byte }

func (d *drawn) Read(p []byte) (int, error) {
	clear(p)
	d.n++
	p[0], p[len(p)-1] = 0xfd, d.n
	return len(p), nil
}

// later has the engine's clock show a month more.
func (s *scene) later() { s.mem.Now = func() time.Time { return day.Add(month) } }

// withoutHead has alice's head deleted by hand, and a machine that read it before repair it.
func (s *scene) withoutHead(id record.Writer) {
	p, _, err := bucket.Read(context.Background(), s.mem, record.HeadKey(alice), record.MaxHead, "")
	must(err)
	h, err := record.DecodeHead(alice, p)
	must(err)
	must(s.mem.Delete(context.Background(), []string{record.HeadKey(alice)}))
	s.said = nil // a collector that comes before the repair may delete what the head named
	s.process(id, func(ctx context.Context, b bucket.Bucket) error {
		for range 8 {
			_, err := mend.Run(ctx, b, mend.Options{Remote: remoteID, Random: &drawn{100}, Parallel: 1,
				Kept: map[record.Writer]*record.Head{alice: h}, Now: func() time.Time { return day }})
			if !errors.Is(err, bucket.ErrPrecondition) && !errors.Is(err, bucket.ErrDoubt) &&
				!errors.Is(err, bucket.ErrNotFound) {
				return err
			}
		}
		return fmt.Errorf("no end of others' changes")
	})
}

// all are the scenes that are explored.
func all() map[string]func() *scene {
	all := maps.Clone(scenes)
	maps.Copy(all, maintained)
	return all
}

// maintained are scenes of undelete, fold and repair.
var maintained = map[string]func() *scene{
	"own undelete": func() *scene {
		s := registered(bob)
		s.does(alice, s.removes)
		s.does(bob, s.brings)
		s.collector(carol)
		return s
	},
	"undelete twice": func() *scene {
		s := registered(bob)
		s.does(bob, s.removes, s.brings)
		s.does(alice, s.brings)
		s.collector(carol)
		return s
	},
	"a fold": func() *scene {
		s := registered(bob)
		s.later()
		s.saves(bob)
		s.folds(carol)
		s.pusher(alice, change{entries: []record.Entry{local.file("runs/a/more", "other")}})
		return s
	},
	"a fold of what goes": func() *scene {
		s := registered(bob)
		s.later()
		s.does(alice, s.removes)
		s.does(bob, s.brings)
		s.folds(carol)
		return s
	},
	"a fold that merges tables": func() *scene {
		s := registered(bob)
		must(s.push(context.Background(), s.machines[alice], s.mem, change{entries: []record.Entry{
			wide("runs/a/wide")}}))
		s.archived()
		s.later()
		s.does(alice, s.removes)
		s.does(bob, s.brings)
		s.folds(carol)
		return s
	},
	"two folds": func() *scene {
		s := registered(bob)
		s.later()
		s.saves(bob)
		s.folds(carol)
		s.folds(dan)
		return s
	},
	"a repair": func() *scene {
		s := shared(bob, erin)
		s.register(bob)
		s.saves(bob)
		s.withoutHead(erin)
		s.collector(carol)
		return s
	},
}
