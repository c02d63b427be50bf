// Package share publishes what lies below runs/ to the remote that a store is joined to, and brings what
// others published.
//
// # What is published
//
// Regular files, symbolic links and folders of runs, with the attributes user.* of folders and the metrics of
// steps. A step is published as a whole, when it is complete (package steps) and was left alone for Quiet, or
// at once when somebody asks for it (Push). What a run holds besides steps is published when no program has
// it open for writing. Not published are names that begin with a dot, but for those that formats give to
// finished files (dotted), names that savers give to what is unfinished, special files, and files whose bytes
// the disk may not have taken.
//
//	what is dirty      of each folder of a run when something in it changed last (Touched). At the start all
//	                   runs are looked through.
//	what is new        of a name that looks otherwise than it did when it was published (known.Look) an entry
//	                   is made; it is published if it says something else than the remote has (known.Content)
//	what it replaces   the entries that the tree showed when the change was made (Tips)
//
// What a program removes or moves away is noted before that is done, if the remote has it, and published from
// there (package removals). A note is forgotten once its removal was published, or when the name is there
// after all.
//
// # Stubs
//
// Names that others published appear where somebody looks (Ensure, lazy.go): those of one folder, by what the
// heads said at the last fetch. A file appears as a stub, a packed file whose record has the flag remote
// (package tree); where its plan is was kept before it has its name. What a program changed here, and what
// it removed and is not published so, stays as it is. A stub lets go of its flag when its bytes have come
// (Pull), and a file that the remote has gets it (Drop).
//
// A look is no push and waits for none. Names that are made by one (lazy.making) are not published before it
// is known that they are the remote's. The kernel is told of them by a goroutine of its own: it holds a
// folder while a lookup in it is answered. A command answers once the kernel has heard (Heard). What an
// earlier process did not come to tell the next one tells (lazy.untold).
//
// # Pull
//
// A name is made as programs make them: a file without a name is given a manifest whose records are all in
// the local store (content.Adopt), its mode and times, then the name, in place of what was there. A program
// that has the old file open keeps it. What was changed here and not published is left as it is. What a name
// is about to get is noted before (known.Name.Next): after a crash it is no change that was made here. That
// is settled before a program changes the name (Changing); package known lists what kills leave.
//
// # What goes by itself
//
// While the disk is short, files that the remote has are made stubs by Spare: those that nobody used for an
// hour, the least recently used first, and each only once the remote was asked for its objects (Drop).
//
// Locks: Share.pushing is held over a push and a pull. Nothing is locked while the tree is changed but what
// that locks, and Share.leaving.
package share

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bring"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/heads"
	"ckptfs/cas/remote/index"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/reuse"
	"ckptfs/cas/remote/writer"
	"ckptfs/cas/store"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/pack"
	"ckptfs/fs/share/changed"
	"ckptfs/fs/share/contact"
	"ckptfs/fs/share/known"
	"ckptfs/fs/share/removals"
	"ckptfs/fs/share/shared"
	"ckptfs/fs/share/versions"
	"ckptfs/fs/share/yield"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
)

// State is what outlasts the process: STORE/remote.db. It may be lost as a whole.
type State interface {
	writer.State
	heads.Cache
	// Name is what was set of a path; nil: nothing was.
	Name(path string) ([]byte, error)
	// SetNames sets what is kept of paths, all or nothing of it; nil: nothing is. It is durable when it
	// returns.
	SetNames(map[string][]byte) error
	// EachName calls f with what is kept of a path and of what is below it.
	EachName(path string, f func(path string, p []byte) error) error
	// File is where the plan of a manifest's file is, as SetFiles was told; nil: it was not.
	File(manifest cas.Hash) (*record.File, error)
	// SetFiles keeps that of files. It is durable when it returns.
	SetFiles([]*record.File) error
	// Expect is SetFiles and SetNames, together all or nothing.
	Expect([]*record.File, map[string][]byte) error
	// NoteNames is SetNames, but that a crash may take it until Sync returns.
	NoteNames(map[string][]byte) error
	Sync() error
	Close() error
}

// Tree changes the tree as programs do.
type Tree interface {
	Mkdir(dir *names.Node, name string, mode uint32, c tree.Caller) (*names.Node, tree.Attr, error)
	Symlink(dir *names.Node, name, target string, c tree.Caller) (*names.Node, tree.Attr, error)
	Link(n, dir *names.Node, name string) (tree.Attr, error)
	Rename(oldDir *names.Node, oldName string, newDir *names.Node, newName string, flags uint32) error
	Unlink(dir *names.Node, name string) error
	Rmdir(dir *names.Node, name string) error
	Setattr(n *names.Node, s *tree.SetAttr) (tree.Attr, error)
}

// Options say what a Share is of.
type Options struct {
	Folder *disk.Folder // the store's
	Joined remote.Joined
	Bucket bucket.Bucket
	State  State
	Random io.Reader

	Names  *names.Names
	Tree   Tree
	Steps  *steps.Steps
	Models Models
	Store  *store.Store
	Pack   *pack.Packer
	// Wait has packing not leave the processors to other programs until done is called.
	Wait func() (done func())
	// Settle packs the queue, and makes it durable.
	Settle func(ctx context.Context) error
	// Kernel is told of names that are made.
	Kernel func() content.Kernel
	// Reader reads the remote's objects, by way of what was kept of them. Held returns an error unless the
	// remote has what reading a file takes.
	Reader *fetch.Reader
	Held   func(context.Context, *record.File) error
	// Stored is told how much of an object was brought into the store.
	Stored func(object record.ID, bytes int64)
	// Poll is how often the remote is asked whether something changed; 0: when a command asks for it.
	Poll time.Duration
	// Runs are patterns (path.Match): of others' runs those appear whose names match one; none: all do.
	Runs   []string
	Now    func() time.Time
	Report func(level slog.Level, msg string, args ...any)
}

// Share connects a store's tree with its remote.
type Share struct {
	o        Options
	removals *removals.Log
	writer   *writer.Writer
	heads    *heads.Heads
	bring    *bring.Bringer
	find     *reuse.Finder

	pushing sync.Mutex
	// leaving is held shared while a name goes to where nothing is shared, from when it is known that it is
	// no stub's. A file becomes a stub under it, with the name that is published.
	leaving  sync.RWMutex
	lazy     *lazy
	versions *versions.Finder
	// noting is held to change what is known of names.
	noting sync.Mutex

	changed *changed.Log

	mu     sync.Mutex
	status control.RemoteStatus

	unasked yield.Yielding

	contact *contact.Contact

	wake chan struct{}
	stop context.CancelFunc
	end  sync.WaitGroup
	// publishes: what is complete is published in the background.
	publishes bool
	// background ends with Stop.
	background context.Context
}

// Leaving keeps files from becoming stubs until done is called.
func Leaving(s *Share) (done func()) {
	s.leaving.RLock()
	return s.leaving.RUnlock
}

// parallel is how many objects are put at a time.
const parallel = 4

// Open opens what a store knows of its remote. Nothing is asked of the engine yet.
func Open(o Options) (*Share, error) {
	in, err := removals.Open(o.Folder)
	if err != nil {
		return nil, err
	}
	h, err := heads.Open(o.Bucket, o.Joined.ID, o.State)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	s := &Share{o: o, removals: in, heads: h, versions: versions.New(h),
		changed: changed.New(o.Now, Quiet),
		wake:    make(chan struct{}, 1),
		bring: &bring.Bringer{
			Reader: o.Reader, Store: o.Store, Learn: o.State.Learn, Stored: o.Stored,
		},
	}
	s.find = &reuse.Finder{Reader: o.Reader, State: o.State, Get: o.Store.Get,
		Index: index.NewReader(o.Bucket, o.Joined.ID)}
	s.writer = writer.New(writer.Options{
		Bucket: o.Bucket, Remote: o.Joined.ID, State: o.State, Joined: o.Joined.Writer,
		Register: func(ctx context.Context) (record.Writer, error) {
			return remote.Register(ctx, o.Bucket, nameOf(o.Joined.Writer))
		},
		Now: o.Now, Random: o.Random, Parallel: parallel,
	})
	s.contact = contact.New(contact.Options{Bucket: o.Bucket, URL: o.Joined.URL(), Now: o.Now,
		Report: o.Report})
	s.lazy = newLazy(s)
	s.status = control.RemoteStatus{URL: o.Joined.URL(), Writer: string(o.Joined.Writer),
		ReadOnly: o.Joined.ReadOnly(), Waiting: []control.Skip{}}
	return s, nil
}

// nameOf is a writer's name without its digits.
func nameOf(w record.Writer) string {
	name, _, _ := strings.Cut(string(w), ".")
	return name
}

// Stop ends what Start began.
func (s *Share) Stop() {
	if s.stop != nil {
		s.stop()
		s.end.Wait()
	}
}

// Close ends what Open began.
func (s *Share) Close() error {
	return errors.Join(s.removals.Close(), s.o.State.Close())
}

// Status says how far the store and its remote are.
func (s *Share) Status() *control.RemoteStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	s.contact.Tell(&st)
	return &st
}

// Touched notes that a name, or what it leads to, changed. It waits for nothing.
func (s *Share) Touched(p string) {
	if p == steps.Dir { // a folder that was moved here
		s.TouchedAll()
	}
	if shared.Step(p) != "" {
		s.changed.Touched(p)
		s.wakeUp()
	}
}

// TouchedAll notes that something changed of which not all names are known.
func (s *Share) TouchedAll() {
	s.changed.TouchedAll()
	s.wakeUp()
}

func (s *Share) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Removing notes that a name is about to be removed, or moved away. done says whether that was done. What
// cannot be noted is removed all the same, and comes back: nothing is lost by that.
func (s *Share) Removing(p string) (done func(happened bool)) {
	if shared.Step(p) == "" || s.lazy.isQuiet(p) {
		return func(bool) {}
	}
	end := removals.Nothing
	has, err := settling{s}.settleBelow(p)
	if has {
		var nerr error
		end, nerr = s.removals.Add(p)
		err = errors.Join(err, nerr)
	}
	s.unnoted(p, err)
	return func(happened bool) {
		err := end(happened)
		if happened && !has {
			err = s.removed(p)
		}
		if happened {
			s.lazy.went(p)
		}
		s.unnoted(p, err)
	}
}

// unnoted reports that what happens to a name may not be what is published.
func (s *Share) unnoted(p string, err error) {
	if err != nil {
		s.o.Report(slog.LevelWarn, "a removal could not be noted for the remote", "path", p, "reason", err)
	}
}

// has reports whether the remote has a name, or one below it.
func (s *Share) has(p string) (bool, error) {
	is := errors.New("the remote has it")
	err := s.o.State.EachName(p, func(string, []byte) error { return is })
	if errors.Is(err, is) {
		return true, nil
	}
	return false, err
}

// removed notes that a name has gone, if it was published or pulled while a program removed it.
func (s *Share) removed(p string) error {
	has, err := s.has(p)
	if err != nil || !has {
		return err
	}
	return s.went(p)
}

// went notes that a name is gone.
func (s *Share) went(p string) error {
	done, err := s.removals.Add(p)
	return errors.Join(err, done(true))
}

// keep keeps what is known of names by setting it, each of which was there a moment ago. What went until now
// did so unknown to Removing.
func (s *Share) keep(set map[string][]byte, setting func(map[string][]byte) error) error {
	s.noting.Lock()
	err := setting(set)
	s.noting.Unlock()
	if err != nil {
		return err
	}
	for p, k := range set {
		if k == nil {
			continue
		}
		there, _, err := s.kind(p)
		if err == nil && !there {
			err = s.went(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Sync makes durable what Removing noted.
func (s *Share) Sync() error {
	return s.removals.Sync()
}

// rests is for how long what a run holds was left alone. What is done to it just now may not have been told
// yet; its change time tells.
func (s *Share) rests(n *names.Node, p string) time.Duration {
	rest := Quiet
	now := s.o.Now()
	if a, err := n.Attr(); err == nil {
		if since := now.Sub(time.Unix(0, nanoseconds(a.Ctime))); since >= 0 { // else the clock was set back
			rest = min(rest, since)
		}
	}
	return s.changed.Rest(p, rest)
}

func (s *Share) known(p string) (*known.Name, error) {
	b, err := s.o.State.Name(p)
	if b == nil || err != nil {
		return nil, err
	}
	return known.Decode(p, b)
}

// knownBelow are the names at or below a path that the remote has, and that were here.
func (s *Share) knownBelow(at string) (paths []string, err error) {
	err = s.o.State.EachName(at, func(p string, b []byte) error {
		if k, err := known.Decode(p, b); err != nil || !k.Bare() {
			paths = append(paths, p)
		}
		return nil
	})
	return paths, err
}
