package share

import (
	"context"
	"fmt"

	"ckptfs/cas/remote/mend"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
)

// RepairRemote makes heads again that were deleted or put back by hand, from what this store read of them
// last and from commit records; those of from, from commit records alone. What no head may name any more, and
// is still there, this store publishes.
func (s *Share) RepairRemote(ctx context.Context, from []string, report func(control.Progress)) (
	*control.RemoteRepaired, error) {
	defer Heard(ctx, s)
	if _, err := fetchHeads(ctx, s); err != nil {
		return nil, err
	}
	o := mend.Options{Remote: s.o.Joined.ID, Kept: map[record.Writer]*record.Head{}, Now: s.o.Now,
		Random: s.o.Random, Say: func(doing string, n int64) {
			if report != nil {
				report(control.Progress{Current: doing, DoneFiles: int(n)})
			}
		}}
	for _, w := range s.heads.Writers() {
		o.Kept[w] = s.heads.Head(w)
	}
	for _, w := range from {
		o.From = append(o.From, record.Writer(w))
	}
	rep, err := mend.Run(ctx, s.o.Bucket, o)
	if err != nil {
		return nil, err
	}
	out := repaired(rep)
	var back []revived
	for _, e := range rep.Revive {
		back = append(back, revived{entry: e, lost: func(why error) {
			out.Lost = append(out.Lost, control.Skip{Path: e.Path, Reason: fmt.Sprintf("of %s: %v", e.Origin,
				why)})
		}})
	}
	if _, err := s.lazy.fetch(ctx, s.heads.Refresh); err != nil {
		return nil, err
	}
	out.Revived, err = s.revive(ctx, back)
	s.lazy.found(true) // what came back appears
	s.lazy.refresh(ctx)
	return out, err
}

func repaired(rep *mend.Report) *control.RemoteRepaired {
	out := &control.RemoteRepaired{Heads: []control.MendedHead{}, Lost: []control.Skip{},
		Unknown: []control.UnknownWriter{}, Damaged: append([]string{}, rep.Damaged...)}
	for _, m := range rep.Mended {
		out.Heads = append(out.Heads, control.MendedHead{Writer: string(m.Writer), Was: m.Was, Same: m.Same,
			Names: m.Entries, Commit: m.Sequence})
	}
	for _, l := range rep.Lost {
		out.Lost = append(out.Lost, control.Skip{Path: l.Path,
			Reason: fmt.Sprintf("of %s: object %s is gone", l.Writer, l.Object)})
	}
	for _, x := range rep.Orphans {
		out.Unknown = append(out.Unknown, control.UnknownWriter{Writer: string(x.Writer), Commits: x.Commits,
			Last: x.Last})
	}
	return out
}
