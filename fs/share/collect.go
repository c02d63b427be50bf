package share

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	rnames "ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/share/attrs"
	"ckptfs/fs/share/changed"
	"ckptfs/fs/share/known"
	"ckptfs/fs/share/shared"
	"ckptfs/fs/steps"
)

// Quiet is for how long a step is left alone before it is published by itself.
const Quiet = 5 * time.Second

// found is what is to be published.
type found struct {
	entries []record.Entry       // ascending by path; those of removed names are tombstones
	looks   map[string]known.Sum // of their names, but for the removed
	stayed  map[string]bool      // folders that no program changed, by path: they replace folders alone
	same    map[string]revised   // what is known of names that look otherwise, and are what the remote has
	done    map[string]*steps.Step
	intents int            // how many removals were looked at
	later   []control.Skip // what is not published yet, and why
	soon    time.Time      // when some of it may be; zero: nothing waits for time alone
}

// collector looks for what is to be published of runs.
type collector struct {
	looker
	found
	path  string // of what was asked for: it, what is below it, and the folders above it
	dirty changed.Runs
	now   bool // it was asked for: what is complete is not left alone first
	steps map[string]*steps.Step
	run   string
	// again has the names that programs removed since the last push; true: and made again.
	again map[string]bool

	unready bool // some of a step is to be published soon
}

// collect finds out what is to be published at or below a path, which is "runs" or below it.
func (l *looker) collect(ctx context.Context, at string, dirty changed.Runs, now bool) (*found, error) {
	c := &collector{looker: *l, path: at, dirty: dirty, now: now, again: map[string]bool{}}
	c.looks, c.same, c.done = map[string]known.Sum{}, map[string]revised{}, map[string]*steps.Step{}
	c.stayed = map[string]bool{}
	if err := c.removed(); err != nil {
		return nil, err
	}
	top, err := c.o.Names.Resolve(steps.Dir)
	if errors.Is(err, unix.ENOENT) {
		return &c.found, nil
	}
	if err != nil {
		return nil, err
	}
	defer top.Unpin()
	err = c.each(ctx, top, steps.Dir, func(n *names.Node, p string) error {
		if !n.IsDir() {
			c.note(p, "not shared: it lies in no run")
			return nil
		}
		return c.inRun(ctx, n, p)
	})
	if err != nil {
		return nil, err
	}
	return &c.found, nil
}

// each calls f with what a folder holds that may be shared, and is, or leads to, what was asked for.
func (c *collector) each(ctx context.Context, dir *names.Node, at string,
	f func(n *names.Node, p string) error) error {
	list, err := dir.ListQuietly()
	if err != nil {
		return shared.Gone(err)
	}
	kept, err := c.clear(dir, at, list)
	if err != nil {
		return err
	}
	c.later = append(c.later, kept...)
	for _, e := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := at + "/" + e.Name
		if !shared.MayPublish(e.Name) || !shared.Leads(p, c.path) {
			continue
		}
		if err := record.CheckPath(p); err != nil {
			c.note(p, err.Error())
			continue
		}
		n, _, err := c.o.Names.Child(dir, e.Name)
		if err != nil {
			if shared.Gone(err) != nil {
				return err
			}
			continue
		}
		err = f(n, p)
		n.Unpin()
		if err != nil {
			return err
		}
	}
	return nil
}

// inRun looks through a run.
func (c *collector) inRun(ctx context.Context, dir *names.Node, at string) error {
	c.run = path.Base(at)
	if !c.dirty.Has(at) {
		return nil
	}
	all, err := c.o.Steps.Of(c.run)
	if err != nil {
		return err
	}
	c.steps = map[string]*steps.Step{}
	for _, st := range all[c.run] {
		c.steps[st.Name] = st
	}
	if why := c.waits(dir, at, nil); why != "" {
		if k, err := c.known(at); k == nil || err != nil { // else what it holds is named
			c.note(at, why)
		}
	} else if err := c.add(ctx, dir, at, nil); err != nil {
		return err
	}
	return c.each(ctx, dir, at, func(n *names.Node, p string) error {
		st := c.steps[path.Base(p)]
		if st != nil && c.changed.WasDone(p, st) {
			return nil
		}
		if why := c.waits(n, p, st); why != "" {
			if c.own(ctx, n, p, st) {
				c.note(p, why)
			}
			return nil
		}
		waiting, entries := len(c.later), len(c.entries)
		c.unready = false
		if err := c.all(ctx, n, p, st); err != nil {
			return err
		}
		if st != nil && len(c.later) == waiting {
			c.done[p] = st
		}
		if st != nil && c.unready {
			c.entries = c.entries[:entries] // a step appears as a whole
		}
		return nil
	})
}

const justNow = "it was changed just now"

// waits says why what a run holds is not published yet; "": it is.
func (c *collector) waits(n *names.Node, p string, st *steps.Step) string {
	if st != nil {
		switch c.o.Steps.State(st) {
		case control.StepWriting:
			return errOpen.Error()
		case control.StepTorn:
			return errTorn.Error()
		}
	}
	if rest := c.rests(n, p); rest < Quiet && !c.now {
		if soon := c.o.Now().Add(Quiet - rest); c.soon.IsZero() || soon.Before(c.soon) {
			c.soon = soon
		}
		return justNow
	}
	return ""
}

// all adds a node and what is below it. st is the step that it is.
func (c *collector) all(ctx context.Context, n *names.Node, p string, st *steps.Step) error {
	first := len(c.entries)
	stays, err := c.stays(ctx, n, p)
	if err == nil && !stays {
		err = c.add(ctx, n, p, st)
	}
	if err == nil && n.IsDir() {
		err = c.each(ctx, n, p, func(n *names.Node, p string) error { return c.all(ctx, n, p, nil) })
	}
	if err == nil && stays {
		err = c.addStaying(ctx, n, p, st, first)
	}
	return err
}

// add adds the entry of a node, if it is another than the remote has.
func (c *collector) add(ctx context.Context, n *names.Node, p string, st *steps.Step) error {
	if c.lazy.isMaking(path.Dir(p)) { // asked before what is known: from here on what was made is known
		c.unready = true
		c.note(p, "names of others appear beside it just now")
		return nil
	}
	k, err := c.known(p)
	if err == nil && (k != nil && k.Next != nil || k == nil && isStub(n)) { // after a crash
		lacks := c.lazy.ensure(ctx, path.Dir(p))
		k, err = c.known(p)
		cut := lacks != nil && (k.Bare() && n.IsDir() && !c.isMade(ctx, p) ||
			k != nil && k.Next != nil && !errors.Is(lacks, errAgain))
		if err == nil && cut { // perhaps it has not all its attributes yet
			c.unready = true
			c.note(p, lacks.Error())
			return nil
		}
		now, rerr := c.o.Names.Resolve(p) // it may have been replaced
		if rerr != nil {
			return errors.Join(err, shared.Gone(rerr))
		}
		defer now.Unpin()
		n = now
	}
	if err != nil {
		return err
	}
	was := k.Encode()
	asKnown := k
	if c.again[p] && n.File() == nil { // it looks like the one that was removed
		held, err := c.heldBelow(ctx, p)
		if err != nil {
			return err
		}
		if rnames.Merge(held[p]).Name == nil { // as others did
			asKnown = nil
		}
	}
	e, look, err := c.entry(n, p, st, asKnown)
	if err == nil && e != nil && attrs.Size(e) > record.MaxEntry/2 {
		err = fmt.Errorf("its attributes are too long for an entry")
	}
	switch {
	case shared.Gone(err) == nil && err != nil || err == nil && e == nil:
		return nil
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case err != nil:
		c.unready = c.unready || slices.ContainsFunc([]error{errOpen, errUnpacked, errChanged},
			func(soon error) bool { return errors.Is(err, soon) })
		c.note(p, err.Error())
		return nil
	case asKnown.Shown(e, look):
		c.same[p] = revised{was, k.Encode()}
		return nil
	}
	if k != nil && k.Content == (known.Sum{}) && n.IsDir() { // as noteTips has it
		if ousts, err := c.ousts(ctx, p); ousts || err != nil {
			return err
		}
		c.stayed[p] = true
	}
	if stands, err := c.stands(n, p, was); !stands || err != nil {
		c.unready = true
		c.note(p, justNow)
		return err
	}
	c.looks[p] = look
	c.entries = append(c.entries, *e)
	return nil
}

// isMade reports whether a program made a folder of which nothing is known: others have a file or a link of
// its name, so no look was making it.
func (c *collector) isMade(ctx context.Context, p string) bool {
	held, err := c.heldBelow(ctx, p)
	e := rnames.Merge(held[p]).Name
	return err == nil && len(held) == 1 && e != nil && e.Kind != record.KindFolder
}

// stands reports whether a name still leads to a node, and nothing else is known of it than was: a look may
// have replaced it since.
func (c *collector) stands(n *names.Node, p string, was []byte) (bool, error) {
	now, err := c.o.State.Name(p)
	if err != nil || !bytes.Equal(now, was) {
		return false, err
	}
	there, err := c.o.Names.Resolve(p)
	if err != nil {
		return false, shared.Gone(err)
	}
	defer there.Unpin()
	return there.Ino() == n.Ino(), nil
}

func (c *collector) note(p, why string) {
	c.later = append(c.later, control.Skip{Path: p, Reason: why})
}

// own reports whether anything of what changed just now may be this machine's: names of others that appeared
// are no more than what the remote has.
func (c *collector) own(ctx context.Context, n *names.Node, p string, st *steps.Step) bool {
	if k, err := c.known(p); k == nil || err != nil {
		return true
	}
	mine := &counter{Share: c.Share, ctx: ctx}
	return mine.count(n, p, st) != nil || mine.out.Files > 0
}

// removed adds tombstones of names that programs removed.
func (c *collector) removed() error {
	all := c.Share.removals.All()
	for _, at := range all {
		if !shared.Leads(at, c.path) {
			continue
		}
		paths, err := c.knownBelow(at)
		if err != nil {
			return err
		}
		for _, p := range paths {
			if _, seen := c.again[p]; seen {
				continue
			}
			there, _, err := c.kind(p)
			if err != nil {
				return err
			}
			c.again[p] = there
			if !there {
				c.entries = append(c.entries, record.Entry{Path: p, Kind: record.KindTombstone})
			}
		}
	}
	if c.path == steps.Dir {
		c.found.intents = len(all)
	}
	return nil
}
