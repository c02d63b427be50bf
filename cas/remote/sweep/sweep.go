// Package sweep deletes the objects of a remote that nothing refers to, while others push and read.
//
// # Protocol
//
// D(w) are the objects that the head of writer w refers to: its tables, and the deps of its entries that
// nothing replaces (package names).
//
//	1  mark: read all heads and their tables; live = ⋃ D(w)
//	2  list d, m, t, i; unreferenced = listed − live; gc/aging notes since when, by the engine's clock
//	3  X = what is unreferenced for as long as the grace says. If it is empty, end
//	4  make gc/e/N with X, then gc/state := N, by compare-and-swap: so N is published
//	5  stamp: each head gets N as its stamp, by compare-and-swap, unless its stamp is as great
//	6  mark again, all heads; Y = X − live
//	7  gc/e/N := deleted(Y), by compare-and-swap; then delete Y
//
// A writer reads its head, then gc/state, here E, then gc/e up to E, and commits with stamp E. The commit
// adds no object that an epoch up to E names, be it condemned or deleted.
//
// # Why nothing is lost
//
// Suppose o of X is deleted and is in D(w) at some time after. Let c be the commit that added it for the last
// time. If c came before w's stamp, the second mark read w's head after c and saw o. If c came after, it was
// built on a head of stamp N or later, so its author had read gc/state from N on, and did not add o. A writer
// that registers after the heads were listed reads gc/state after that. What replaces an entry does not go
// while that is held, so that nothing comes into D(w) by itself. No clock occurs: a collector may stop for a
// year at any step. The grace protects what is open elsewhere, undelete, and uploads from being done twice.
//
// Anybody may go on with an epoch that another left behind, and does, before the next one begins: so all but
// the newest are decided. Two that finish one epoch may mark at different times and so want to delete
// different objects; therefore what is deleted is written down first, once, and deleted by that record.
//
// Where somebody else made gc/e/N first, that N is finished and all begins again. Where gc/state is no longer
// what it was, the same: the number may have been used, finished and forgotten since.
//
// # Entries that may go
//
// Replaced entries, and tombstones that cover nothing more, are taken out of the tails of heads in the same
// writes as the stamps, since their writers may be gone. For this all heads are read once more, before the
// first stamp. What an entry is over was in some head before its author read gc/state; a head that is still
// to be stamped with N was written by one who read it before N was published; so what its entries are over is
// seen, unless it is gone for good (package names).
//
// # Folding
//
// What a writer holds that was idle for long moves to the head of @archive, so that there are not more and
// more heads. Entries keep their origin and version.
//
//	1  GET heads/@archive            it is made first if there is none
//	2  GET gc/state, and all gc/e    a commit to @archive obeys what a writer's does: none of its objects is
//	                                 named by an epoch; else the writer is folded another time
//	3  GET heads/W
//	4  PUT heads/@archive            with what W's head and tables hold, by compare-and-swap
//	5  PUT heads/W                   without entries, flagged as folded, with a commit of its own; if it is
//	                                 still what 3 read
//
// Between 4 and 5 both have the entries, which are one by origin and version. If W commits before 5, nothing
// is taken from it: its newer entries win. If it comes back after 5, it meets another's commit, and registers
// again. A folded head stays for 90 days, and is then deleted. By then no request is on its way that is not
// on condition of a version that it does not have any more.
package sweep

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/survey"
)

// Options say what a collection does.
type Options struct {
	Remote    record.ID
	Collector record.Writer // who collects, for people
	// Grace is how long an object has to be unreferenced in every collection.
	Grace time.Duration
	// Keep is how long what epochs deleted is kept after the next one; 0: for ever.
	Keep time.Duration
	// DryRun is to note nothing and to delete nothing.
	DryRun bool
	// Fold is for how long a writer has to be idle before its entries move to @archive; 0: none is folded.
	Fold   time.Duration
	Now    func() time.Time // for people
	Random io.Reader        // gives ids; nil: that of the system
	// Say is told what is being done, and of how much it was done; or nil.
	Say func(doing string, n int64)
}

// Stats say what a collection found and did.
type Stats struct {
	Heads, Entries int       // of the last mark
	Listed         Count     // objects
	Unreferenced   Count     // of them
	Condemned      Count     // objects past their grace
	Deleted        int       // objects, those of an epoch that was left behind among them
	Next           time.Time // when the first of the others is past its grace; zero: never
	Stamped        int       // heads
	TakenOut       int       // entries
	Folded         int       // writers
}

// Count is a number of objects and their bytes.
type Count struct{ Objects, Bytes int64 }

const (
	// rounds is how often a collection begins again because others collect.
	rounds = 8
	// maxCondemned bounds an epoch; the rest is for the next one.
	maxCondemned = 2 << 20
)

// ErrOthers: others collect all the time.
var ErrOthers = errors.New("others collect at the same time")

// collection is one run.
type collection struct {
	b     bucket.Bucket
	o     Options
	heads *survey.Reading
	// marked is what was marked last. What was spare or replaced then is so for good.
	marked *survey.Mark
	stats  Stats
	say    func(string, int64)
}

// Collect deletes what is unreferenced for longer than the grace. Requests are expected to be made again
// where they fail in a way that passes (package patient).
func Collect(ctx context.Context, b bucket.Bucket, o Options) (Stats, error) {
	if o.Say == nil {
		o.Say = func(string, int64) {}
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	c := &collection{b: b, o: o, heads: survey.New(b, o.Remote, o.Say), say: o.Say}
	for range rounds {
		done, err := c.round(ctx)
		if err == nil && done && c.o.Fold > 0 && !c.o.DryRun {
			err = c.foldIdle(ctx)
		}
		if err != nil || done {
			return c.stats, err
		}
	}
	return c.stats, ErrOthers
}

// round finishes the newest epoch, and runs one; false: it was another's, or others were faster.
func (c *collection) round(ctx context.Context) (bool, error) {
	s, version, err := c.state(ctx)
	if err != nil {
		return false, err
	}
	if s.Epoch > 0 && !c.o.DryRun {
		if err := c.finish(ctx, s.Epoch); err != nil {
			return false, err
		}
	}
	m, err := c.mark(ctx)
	if err != nil {
		return false, err
	}
	condemned, err := c.condemnable(ctx, m)
	if err != nil || len(condemned) == 0 || c.o.DryRun {
		return true, err
	}
	next := record.State{Remote: c.o.Remote, Epoch: s.Epoch + 1}
	ours, err := c.condemn(ctx, next.Epoch, condemned)
	if err != nil {
		return false, err
	}
	published, err := c.publish(ctx, next, version)
	if err != nil || !published {
		return false, err
	}
	if err := c.finish(ctx, next.Epoch); err != nil {
		return false, err
	}
	return ours, c.forget(ctx, next.Epoch)
}

func (c *collection) mark(ctx context.Context) (*survey.Mark, error) {
	m, err := c.heads.Mark(ctx)
	if err == nil {
		c.marked = m
		c.stats.Heads, c.stats.Entries = len(m.Heads), m.Entries
	}
	return m, err
}

// finish brings a published epoch to its end, unless it is decided.
func (c *collection) finish(ctx context.Context, n uint32) error {
	e, version, err := c.heads.Epoch(ctx, n)
	if err != nil || e.Deleted {
		return err
	}
	if err := c.stamp(ctx, e); err != nil {
		return err
	}
	m, err := c.mark(ctx)
	if err != nil {
		return err
	}
	if e, err = c.decide(ctx, e, version, m.Live); err != nil {
		return err
	}
	if err := c.delete(ctx, e.Objects); err != nil {
		return fmt.Errorf("epoch %d: %w", n, err)
	}
	return nil
}

// atOnce is how many objects are deleted by one call: so many are told between two looks at how far it is.
const atOnce = 10_000

func (c *collection) delete(ctx context.Context, objects []record.Key) error {
	for part := range slices.Chunk(objects, atOnce) {
		c.say("deleting objects", int64(c.stats.Deleted))
		keys := make([]string, len(part))
		for i, k := range part {
			keys[i] = k.String()
		}
		if err := c.b.Delete(ctx, keys); err != nil {
			return err
		}
		c.stats.Deleted += len(keys)
	}
	return nil
}
