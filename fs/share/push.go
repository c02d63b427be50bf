package share

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/local"
	rnames "ckptfs/cas/remote/names"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/writer"
	"ckptfs/cas/segment"
	"ckptfs/fs/control"
	"ckptfs/fs/share/changed"
	"ckptfs/fs/share/known"
	"ckptfs/fs/share/shared"
	"ckptfs/fs/steps"
)

// mostEntries bounds a commit, but for a step that has more, and what is renamed.
const mostEntries = 2000

// Push publishes what is complete at or below a path, which is that of a run, of what one holds, or "" or
// "runs" for all. What is not published is among Skipped, and no error.
func (s *Share) Push(ctx context.Context, at string, o control.PushOptions, report func(control.Progress)) (
	*control.Pushed, error) {
	at, err := shared.Path("push", at)
	if err == nil {
		err = s.o.Joined.MayWrite()
	}
	if err != nil {
		return nil, err
	}
	if err := s.answers(ctx); err != nil {
		return nil, err
	}
	if o.Newest {
		s.unasked.GiveWay()
	}
	if err := s.o.Settle(ctx); err != nil {
		return nil, err
	}
	out, _, err := s.push(ctx, at, asked{o, true}, report)
	return out, s.contact.Noted(err)
}

// answers returns an error if the remote does not answer who asked for a push.
func (s *Share) answers(ctx context.Context) error {
	err := s.contact.Answers(ctx)
	if errors.Is(err, bucket.ErrUnreachable) && s.publishes {
		err = fmt.Errorf("%w; what is complete is published in the background once it does", err)
	}
	return err
}

// asked is how a push was asked for.
type asked struct {
	control.PushOptions
	now bool // what is complete is not left alone first
}

// push publishes what is new at or below a path. soon is when there may be more of it; zero: when something
// changes.
func (s *Share) push(ctx context.Context, at string, how asked, report func(control.Progress)) (
	out *control.Pushed, soon time.Time, err error) {
	s.pushing.Lock()
	defer s.pushing.Unlock()
	was := changed.All()
	if at == steps.Dir {
		was = s.changed.Look()
	}
	defer func() {
		if err != nil {
			was.Undo()
		}
	}()
	l := &looker{Share: s, ctx: ctx, waits: true, batch: s.o.Store.Begin()}
	defer l.batch.Release()
	f, err := l.collect(ctx, at, was, how.now)
	if err == nil {
		err = l.batch.Commit()
	}
	if err == nil && len(f.same) > 0 {
		_, err = s.revise(f.same, s.o.State.SetNames)
	}
	if err != nil {
		return nil, soon, err
	}
	p := &push{Share: s, found: f, how: how, report: report,
		out: control.Pushed{Remote: s.o.Joined.URL(), Skipped: f.later}}
	if err = p.run(ctx); err != nil {
		return nil, soon, err
	}
	s.pushed(p)
	if p.out.Skipped == nil {
		p.out.Skipped = []control.Skip{}
	}
	return &p.out, f.soon, s.removals.Cut(f.intents)
}

// mostWaiting bounds what a status names.
const mostWaiting = 64

// pushed notes what was published, and what is to be looked at again.
func (s *Share) pushed(p *push) {
	var removed, left []string
	for i := range p.entries {
		if at := p.entries[i].Path; p.entries[i].Kind == record.KindTombstone && at == shared.Step(at) {
			removed = append(removed, at)
		}
	}
	for _, w := range p.out.Skipped {
		left = append(left, w.Path)
	}
	s.changed.Pushed(p.found.done, removed, left)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Waiting = slices.Clone(p.later[:min(len(p.later), mostWaiting)])
	s.status.MoreWaiting = len(p.later) - len(s.status.Waiting)
	s.status.Writer = p.out.Writer
}

// push publishes what was found.
type push struct {
	*Share
	*found
	how    asked
	report func(control.Progress)
	out    control.Pushed
	total  control.Progress
	// shown, unless it is nil, is what the entries are over: they are no changes of the tree, which need not
	// have the names.
	shown map[string][]record.Replaced
}

func (p *push) run(ctx context.Context) error {
	id, err := p.o.State.Identity()
	if err != nil {
		return err
	}
	p.out.Writer = string(cmp.Or(id.Writer, p.o.Joined.Writer))
	if p.how.NoConflict {
		if err := p.refuse(ctx); err != nil {
			return err
		}
	}
	for _, entries := range p.commits() {
		if err := p.commit(ctx, entries); err != nil {
			return err
		}
	}
	return nil
}

// commits are the entries of each commit: steps as a whole, the oldest first, and removals last, with the
// names that they went to, or after these. If the newest is to be first, each step is a commit.
func (p *push) commits() (all [][]record.Entry) {
	newest := map[string]int64{}
	for i := range p.entries {
		e := &p.entries[i]
		at := shared.Step(e.Path)
		newest[at] = max(newest[at], e.MTime)
		p.total.TotalFiles++
		if e.File != nil {
			p.total.TotalBytes += e.File.Size
		}
	}
	age := func(e *record.Entry) int64 {
		if e.Kind == record.KindTombstone {
			return 1<<63 - 1
		}
		return newest[shared.Step(e.Path)]
	}
	if p.how.Newest {
		oldest := age
		age = func(e *record.Entry) int64 {
			if e.Kind == record.KindTombstone {
				return oldest(e)
			}
			return -oldest(e)
		}
	}
	sorted := slices.Clone(p.entries)
	slices.SortStableFunc(sorted, func(a, b record.Entry) int {
		return cmp.Or(cmp.Compare(age(&a), age(&b)),
			record.ComparePaths(shared.Step(a.Path), shared.Step(b.Path)))
	})
	for len(sorted) > 0 {
		n := min(mostEntries, len(sorted))
		if p.how.Newest {
			n = 1
		}
		for n < len(sorted) && shared.Step(sorted[n].Path) == shared.Step(sorted[n-1].Path) {
			n++
		}
		one := sorted[:n:n]
		sorted = sorted[n:]
		slices.SortFunc(one, func(a, b record.Entry) int { return record.ComparePaths(a.Path, b.Path) })
		all = append(all, one)
	}
	return all
}

// commit publishes entries.
func (p *push) commit(ctx context.Context, entries []record.Entry) error {
	p.describe(ctx, entries)
	src := &counting{Source: local.Begin(p.o.Store), push: p}
	defer src.Source.Close()
	b := p.o.Store.Begin()
	defer b.Release()
	entries, err := p.bringStubs(ctx, b, entries)
	if err != nil || len(entries) == 0 {
		return err
	}
	if err := p.begun(entries); err != nil {
		return err
	}
	var res writer.Result
	for tries := 0; ; tries++ {
		ch, err := p.changes(ctx, entries)
		if err != nil {
			return err
		}
		p.setPushing(path.Dir(entries[0].Path))
		res, err = p.writer.Push(ctx, src, ch)
		p.setPushing("")
		p.out.Objects, p.out.Bytes = p.out.Objects+res.Objects, p.out.Bytes+res.Bytes
		var other *writer.RegisteredError
		again := errors.As(err, &other) || errors.Is(err, writer.ErrUnsettled)
		if err == nil {
			break
		}
		if !again || tries == 3 {
			return err
		}
		if other != nil {
			if err := p.renamed(ctx, other); err != nil {
				return err
			}
		}
	}
	return p.committed(ctx, entries, res)
}

// begun notes of names that the remote may have them from here on: what a program removes of them is removed
// there, too, if a kill comes before that is known.
func (p *push) begun(entries []record.Entry) error {
	if p.shown != nil {
		return nil
	}
	first := map[string]revised{}
	for i := range entries {
		if entries[i].Kind == record.KindTombstone {
			continue
		}
		k, err := p.known(entries[i].Path)
		if err != nil {
			return err
		}
		if k.Bare() {
			first[entries[i].Path] = revised{k.Encode(), known.Begun(record.Writer(p.out.Writer)).Encode()}
		}
	}
	if len(first) == 0 {
		return nil
	}
	_, err := p.revise(first, p.o.State.SetNames)
	return err
}

// renamed notes that the store publishes under another name from now on.
func (p *push) renamed(ctx context.Context, e *writer.RegisteredError) error {
	p.o.Report(slog.LevelWarn, "the store publishes under another name", "was", e.Was, "now", e.Now, "reason", e.Why)
	p.o.Joined.Writer, p.out.Writer = e.Now, string(e.Now)
	if err := p.o.Joined.Write(p.o.Folder.Path()); err != nil {
		return err
	}
	_, err := p.lazy.fetch(ctx, p.heads.Refresh) // folders have yet to show what it finds
	return err
}

// note makes a head known that was committed.
func (s *Share) note(ctx context.Context, res writer.Result) error {
	noted, err := s.heads.Note(res.Writer, res.At, res.Head)
	if err == nil && !noted {
		_, err = s.lazy.fetch(ctx, s.heads.Refresh)
	}
	return err
}

// changes says what a commit of entries does.
func (p *push) changes(ctx context.Context, entries []record.Entry) (ch writer.Changes, err error) {
	own := record.Writer(p.out.Writer)
	ch.Seen = p.heads.Clock()
	held, err := p.held(ctx, entries)
	if err != nil {
		return ch, err
	}
	if ch.Look, err = p.look(ctx, entries, held); err != nil {
		return ch, err
	}
	for _, e := range entries {
		k, err := p.known(e.Path)
		if err != nil {
			return ch, err
		}
		var shown []record.Replaced
		if k != nil {
			shown = k.Tips
		}
		if p.stayed[e.Path] {
			shown = rnames.Folders(shown, held[e.Path])
		}
		if p.shown != nil {
			shown = p.shown[e.Path]
		}
		e.Over = rnames.Over(own, shown, held[e.Path])
		if was := rnames.Merge(held[e.Path]).Name; e.Kind == record.KindTombstone && was != nil {
			e.Removed = &record.Removed{Time: p.o.Now().UnixNano(), Entry: *was}
			e.Removed.Entry.Over = nil
		}
		ch.Entries = append(ch.Entries, e)
		delete(held, e.Path)
	}
	for path, of := range held {
		for _, e := range of {
			if e.Origin == own && rnames.Spare(e, of) {
				ch.Gone = append(ch.Gone, writer.Gone{Path: path, Version: e.Version, Bare: true})
			}
		}
	}
	return ch, nil
}

// held is what heads have, by path, of the steps of entries.
func (p *push) held(ctx context.Context, entries []record.Entry) (map[string][]*record.Entry, error) {
	held := map[string][]*record.Entry{}
	for at := range groups(entries) {
		said, err := p.heldBelow(ctx, at)
		if err != nil {
			return nil, err
		}
		maps.Copy(held, said)
	}
	return held, nil
}

// groups are what runs hold of which there are entries.
func groups(entries []record.Entry) map[string]bool {
	at := map[string]bool{}
	for i := range entries {
		at[shared.Step(entries[i].Path)] = true
	}
	return at
}

// committed notes what the remote has now.
func (p *push) committed(ctx context.Context, entries []record.Entry, res writer.Result) error {
	failed := map[string]bool{}
	for _, f := range res.Failed {
		failed[f.Path] = true
		p.out.Skipped = append(p.out.Skipped, control.Skip{Path: f.Path, Reason: f.Err.Error()})
		delete(p.found.done, shared.Step(f.Path))
	}
	set := map[string][]byte{}
	tips := []record.Replaced{{Writer: res.Writer, Version: res.Version}}
	for i := range entries {
		e := &entries[i]
		switch {
		case failed[e.Path]:
		case e.Kind == record.KindTombstone:
			set[e.Path] = nil
			p.out.Removed++
		default:
			k := &known.Name{Look: p.looks[e.Path], Content: known.ContentOf(e), Tips: tips}
			set[e.Path] = k.Encode()
			p.out.Names++
		}
	}
	if len(set) == 0 {
		return nil
	}
	if err := p.note(ctx, res); err != nil {
		return err
	}
	if err := p.replan(entries, res); err != nil {
		return err
	}
	p.mu.Lock()
	p.status.LastCommit = p.o.Now()
	p.mu.Unlock()
	p.contact.Published()
	if p.shown != nil {
		return nil
	}
	return p.keep(set, p.o.State.SetNames)
}

func (s *Share) setPushing(at string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Pushing = at
}

// counting tells how far a push is.
type counting struct {
	*local.Source
	push *push
}

var _ objects.Source = (*counting)(nil)

func (c *counting) Payload(r *segment.Record, b []byte) error {
	err := c.Source.Payload(r, b)
	if p := c.push; p.report != nil {
		p.mu.Lock()
		p.total.DoneBytes += int64(r.Raw)
		now := p.total
		p.mu.Unlock()
		now.DoneBytes = min(now.DoneBytes, now.TotalBytes)
		p.report(now)
	}
	return err
}
