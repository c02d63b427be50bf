package share

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote/heads"
	rnames "ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
	"ckptfs/fs/share/shared"
)

// deletion is a name that was deleted, and what of it heads hold.
type deletion struct {
	rnames.Deletion
	path string
}

// deletions reads what was deleted at or below a path.
func (s *Share) deletions(ctx context.Context, at string) (all []deletion, err error) {
	if _, err := fetchHeads(ctx, s); err != nil {
		return nil, err
	}
	of, err := s.heads.Below(ctx, at)
	if err != nil {
		return nil, err
	}
	for path, held := range rnames.Paths(heads.Lists(of)...) {
		if d, ok := rnames.Undelete(held); ok {
			all = append(all, deletion{d, path})
		}
	}
	return all, nil
}

// told is what is said of a deletion.
func (d *deletion) told() control.Deletion {
	out := control.Deletion{Path: d.path, Writer: string(d.By.Origin), Modified: time.Unix(0, d.Entry.MTime)}
	if d.Entry.File != nil {
		out.Size = d.Entry.File.Size
	}
	if d.By.Removed != nil {
		out.Time = time.Unix(0, d.By.Removed.Time)
	}
	return out
}

// Deleted lists the names at or below a path that were deleted, and may be brought back.
func (s *Share) Deleted(ctx context.Context, at string) (*control.Deletions, error) {
	at, err := shared.Path("deleted", at)
	if err != nil {
		return nil, err
	}
	all, err := s.deletions(ctx, at)
	if err != nil {
		return nil, err
	}
	out := &control.Deletions{Names: []control.Deletion{}}
	for i := range all {
		out.Names = append(out.Names, all[i].told())
	}
	return out, nil
}

// Undelete brings back the names at or below a path that were deleted, publishes them, and makes them here.
// What was removed here and is not published so is first.
func (s *Share) Undelete(ctx context.Context, at string, report func(control.Progress)) (
	*control.Undeleted, error) {
	at, err := shared.Path("undelete", at)
	if err != nil {
		return nil, err
	}
	if _, err := s.Push(ctx, at, control.PushOptions{}, nil); err != nil {
		return nil, err
	}
	all, err := s.deletions(ctx, at)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, &fs.PathError{Op: "undelete", Path: at, Err: fmt.Errorf(
			"nothing is known to have been deleted there; what was deleted is told of until the grace of prune --remote is over: %w", unix.ENOENT)}
	}
	out := &control.Undeleted{Skipped: []control.Skip{}}
	if err := s.undelete(ctx, all, out); err != nil || out.Names == 0 {
		return out, err
	}
	var back []string
	for i := range all {
		back = append(back, all[i].path)
	}
	pulled, err := s.pullAll(ctx, at, record.Topmost(back), report)
	if err == nil {
		out.Bytes, out.Skipped = pulled.Bytes, append(out.Skipped, pulled.Skipped...)
	}
	return out, err
}

func (s *Share) undelete(ctx context.Context, all []deletion, out *control.Undeleted) error {
	var back []revived
	skip := func(d *deletion, why error) {
		t := d.told()
		when := ""
		if !t.Time.IsZero() {
			when = " on " + t.Time.Format(time.DateTime)
		}
		out.Skipped = append(out.Skipped, control.Skip{Path: d.path,
			Reason: fmt.Sprintf("%s deleted it%s, and what it had is gone: %v", t.Writer, when, why)})
	}
	for i := range all {
		back = append(back, revived{entry: *all[i].Entry, shown: all[i].Shown,
			lost: func(why error) { skip(&all[i], why) }})
	}
	n, err := s.revive(ctx, back)
	out.Names = n
	return err
}

// revived is an entry that is published once more, as this store's.
type revived struct {
	entry record.Entry
	shown []record.Replaced // what it is over
	lost  func(why error)   // its bytes cannot be had
}

// revive publishes entries of the remote as this store's, from their bytes: where they lie now may be
// condemned, so they are brought first, and what a push relies on it chooses as ever. It returns how many
// were published.
func (s *Share) revive(ctx context.Context, all []revived) (published int, err error) {
	s.pushing.Lock()
	defer s.pushing.Unlock()
	batch := s.o.Store.Begin()
	defer batch.Release()
	p := &push{Share: s, found: &found{}, shown: map[string][]record.Replaced{}}
	skip := map[string]func(error){}
	for i := range all {
		e := all[i].entry
		e.Over, e.Removed = nil, nil
		if e.File != nil && !e.File.Manifest.IsZero() {
			err := s.bring.File(ctx, batch, &e)
			if lost(err) {
				all[i].lost(err)
				continue
			}
			if err != nil {
				return 0, err
			}
			e.File = e.File.Plain()
		}
		p.entries = append(p.entries, e)
		p.shown[e.Path], skip[e.Path] = all[i].shown, all[i].lost
	}
	if err := batch.Commit(); err != nil {
		return 0, err
	}
	err = p.run(ctx)
	for _, f := range p.out.Skipped {
		skip[f.Path](errors.New(f.Reason))
	}
	return p.out.Names, err
}
