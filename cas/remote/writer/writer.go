// Package writer publishes: it puts what files need into a remote, and commits their names to the head of one
// writer.
//
//	1  GET head, unless it is known     its version h and stamp s
//	2  GET gc/state: epoch E            GET gc/e/k of those up to E that are not known: what they condemned
//	3  look, and choose                 what has a place in an object that no epoch condemned is relied on
//	4  PUT objects                      If-None-Match: *; all are acknowledged before 6
//	5  PUT table                        when the tail is full
//	6  PUT head                         If-Match h, with stamp E
//	7  PUT hint                         whether it succeeds or not
//
// A process that read gc/state before reads it in 2 while it does 3 and 4 by what it knows. If there is an
// epoch that it did not know, it begins again: what it relied on and what it put are held against that.
//
// The head was read before gc/state is. So a commit on it that succeeds knew every epoch whose collector had
// stamped the head, and names nothing that such an epoch condemned. This is all that keeps collectors from
// deleting what is named; no clock is asked.
//
// # When 6 is not acknowledged
//
// The head is read:
//
//	it is the commit                     done: the answer was lost, or a stamp came after it
//	it is the one that was built on,
//	    as it was read                   again, the same bytes
//	    with another stamp               from 2 on. What was put for this commit is looked at as anything
//	                                     else: an epoch may have condemned it
//	there is none, or it is any other    the head was folded and deleted, or another process has this
//	                                     identity: one of a copied disk, or of a state that was put back.
//	                                     Registers again (RegisteredError)
//	it is an earlier one                 the engine, or somebody, lost acknowledged commits: ErrRolledBack
//
// Which commits are its own it knows from State: the last that was acknowledged, and those that were sent
// since. A commit is noted there before it is sent. So a process that dies is followed by one that recognizes
// what it did, and a request that is late may come at any time.
//
// Who asked for the last commit may not know of it, either. So what it did is not done twice.
//
// A Put of an object or a table whose answer was lost is settled by looking whether it is there, of that
// length: objects are there as a whole or not at all, and nobody else draws its name. One that is not there
// may come yet. So its name is never used again: what was to be in it is laid out again, in another one.
//
// # Heads and tables
//
// A commit's entries go to the tail, each in the place of the writer's own entry of the path. They keep what
// that was over: what covers something goes on doing so. When the tail passes 128 KiB it becomes a table.
// When this and three before it, or more, are of like size (none is of more than twice the size), they
// become one, up to 16 MiB.
//
// Versions are Lamport's: each commit's is one more than any that the writer has seen.
package writer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
)

// Options of a Writer.
type Options struct {
	Bucket bucket.Bucket
	Remote record.ID
	State  State
	// Joined is a writer that was registered for this store, and is used if it has no commit yet; or "".
	Joined record.Writer
	// Register makes an empty head under an id that was never used (remote.Register).
	Register func(context.Context) (record.Writer, error)
	Now      func() time.Time
	Random   io.Reader // gives ids
	// Parallel is how many objects are put at a time. With 1 no goroutine is started.
	Parallel int
}

// Writer publishes for one local store. It pushes one after the other.
type Writer struct {
	Options
	mu     sync.Mutex
	id     Identity
	loaded bool // id is that of State
	// head is the writer's as it was at version, or nil: it has to be read.
	head    *record.Head
	version bucket.Version
	// last has entries of the last commit of which the answer may have been lost; nil: they are to be read.
	last map[string]record.Entry
	// covers has what entries in tables are over, for each table that was looked at.
	covers map[record.ID]map[string][]record.Replaced
	// recent: this process has read gc/state.
	recent bool
}

// New returns a Writer. It asks for nothing yet.
func New(o Options) *Writer {
	return &Writer{Options: o, covers: map[record.ID]map[string][]record.Replaced{}}
}

// Changes are what one commit does. Paths differ.
type Changes struct {
	// Entries have all but Origin, Version, File.Plan, File.Deps and the places of File.Model.Graph. Over is
	// what the local tree showed of other writers when the change was made.
	Entries []record.Entry
	// Gone are own entries that are replaced, and tombstones. What lies in a table stays until that is merged
	// in a push that still names it.
	Gone []Gone
	// Seen is the highest version in any head that was read.
	Seen int64
	// Look, if not nil, finds out what the remote has of the files besides what State knows: it has State
	// learn of objects, and returns files that are there as a whole, by their manifests. It is called once
	// State knows of all epochs; at most once in a Push, unless it fails.
	Look func(ctx context.Context) (map[cas.Hash]*objects.Whole, error)
	// Again: what the last commit did may be wanted once more, and is no repetition.
	Again bool
}

// Gone is an own entry that is to go.
type Gone struct {
	Path    string
	Version int64
	// Bare: nothing is left in any head or table of what it is over. Else a tombstone remains that is over
	// that.
	Bare bool
}

// Result is what a push did.
type Result struct {
	Writer   record.Writer
	Commit   record.ID // zero: there was nothing to commit
	Sequence int64
	Version  int64          // of the entries
	Head     *record.Head   // that was committed, or that there is
	At       bucket.Version // of the head
	Failed   []Failed       // what was not committed
	Objects  int            // that were put, tables too
	Bytes    int64          // of these
}

// Failed is a path that could not be published: the local store does not give its file, or no head can hold
// its entry.
type Failed struct {
	Path string
	Err  error
}

// ErrRolledBack: the remote lacks what was acknowledged. Nothing may be written before somebody has looked.
var ErrRolledBack error = rolledBack{}

type rolledBack struct{}

func (rolledBack) Error() string {
	return "the remote lacks what it had acknowledged: nothing is published any more, until the newest " +
		"version of the object is put back (versions of the bucket), or repair --remote makes it"
}

func (rolledBack) Is(target error) bool { return target == bucket.ErrUnfit }

// ErrUnsettled: it is not known whether the changes are committed. The next push finds out.
var ErrUnsettled = errors.New("whether it was committed is not known: push again")

// RegisteredError says that the store publishes under another name from now on, and that nothing of the
// changes was committed. What was published under the name before is another writer's now, so that
// Entry.Over has to be looked up again. Then push again.
type RegisteredError struct {
	Was, Now record.Writer
	Why      string
}

func (e *RegisteredError) Error() string {
	return fmt.Sprintf("%s: this store, which was %s, publishes as %s from now on", e.Why, e.Was, e.Now)
}

const attempts = 8 // of a push, without anything new being put or found lost

// errAgain: the push goes on from its first step.
var errAgain = errors.New("interrupted again and again")

// Push puts what the changes need and commits them, all at once, but for Result.Failed. src may be nil if no
// entry has a manifest. After an error they may be committed or not, and may be pushed again: what was
// committed is not committed twice.
func (w *Writer) Push(ctx context.Context, src objects.Source, ch Changes) (Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.identify(ctx); err != nil {
		return Result{}, err
	}
	p := newPush(w, src, ch)
	for left := attempts; left > 0; left-- {
		before := p.progress()
		err := p.attempt(ctx)
		if err == nil {
			w.told(&ch)
		}
		if err == nil || !errors.Is(err, errAgain) {
			p.result.Writer, p.result.Head, p.result.At = w.id.Writer, w.head, w.version
			return p.result, err
		}
		w.head = nil
		if p.last = err; p.progress() > before {
			left = attempts
		}
	}
	return p.result, fmt.Errorf("push of %s: %w", w.id.Writer, p.last)
}

// attempt takes the steps once.
func (p *push) attempt(ctx context.Context) error {
	if err := p.w.readHead(ctx); err != nil {
		return err
	}
	epoch, err := p.w.besideEpochs(ctx, p.put)
	if err != nil {
		return err
	}
	next, changed := p.next(epoch)
	if !changed {
		p.result.Commit = record.ID{}
		return nil
	}
	body, err := p.encode(ctx, next)
	if err != nil {
		return err
	}
	return p.commit(ctx, next, body)
}

// put is all that is put before the commit.
func (p *push) put(ctx context.Context) error {
	if err := p.prepare(ctx); err != nil {
		return err
	}
	if err := p.look(ctx); err != nil {
		return err
	}
	return p.upload(ctx)
}

// sortEntries puts entries in order.
func sortEntries(entries []record.Entry, own record.Writer) {
	slices.SortFunc(entries, func(a, b record.Entry) int { return a.Compare(&b, own) })
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), cas.ErrCorrupt)
}
