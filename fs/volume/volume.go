// Package volume is an open store, without FUSE: it makes the parts, connects them, and passes each request
// to the part that answers it.
//
//	storage.go   the folder on the disk: the lock, the index, the segments
//	parts.go     makes the parts, and hands each what it needs of the others
//	ending.go    ends the use of the store, in order or for another process to go on
//	durable.go   syncs the whole store, and knows which files may have lost bytes
//	events.go    which parts act when a file changes its state
//	files.go     the tree for the parts that read it without nodes
//	ops_*.go     what the kernel asks: names, attributes, open files; openfile.go has the kinds of these
//	xattr.go     extended attributes; artifact.go has the one that is computed
//	requests.go  what the control socket asks; status.go, sync.go and counters.go with it
//	repair.go    opens a damaged store
//
// Every operation on a name or a file is the same operation on the inode in STORE/tree (package names). Two
// kinds of names have no inode: views, each beside the file that it is made of, and virtual files, below
// .ckptfs (package virtual). Package content has the states of a file. Package tree specifies which copy of a
// file's bytes is true in which state.
//
// docs/architecture.md ranks the packages below this one, and the locks. This package has no locks.
package volume

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/fs/artifacts"
	"ckptfs/fs/bases"
	"ckptfs/fs/content"
	"ckptfs/fs/idle"
	"ckptfs/fs/inspect"
	"ckptfs/fs/maintenance"
	"ckptfs/fs/models"
	"ckptfs/fs/names"
	"ckptfs/fs/pack"
	"ckptfs/fs/policy/live"
	"ckptfs/fs/queue"
	"ckptfs/fs/residency"
	"ckptfs/fs/steps"
	"ckptfs/fs/throttle"
	"ckptfs/fs/tree"
	"ckptfs/fs/usage"
	"ckptfs/fs/virtual"
)

// Volume is an open store.
type Volume struct {
	storage
	started time.Time

	content *content.Files
	names   *names.Names
	virtual *virtual.Virtual

	steps     *steps.Steps
	inspect   *inspect.Inspector
	artifacts *artifacts.Artifacts
	models    *models.Models
	passes    *maintenance.Passes
	usage     *usage.Usage
	sharing   sharing

	workers

	mounted  atomic.Pointer[mount] // nil: not mounted
	survey   *maintenance.Survey   // that of the start
	recovery *maintenance.Survey   // the same if it had to repair; nil: nothing was

	closing   atomic.Bool
	abandoned atomic.Bool   // see Abandon
	surveyed  chan struct{} // closed when the survey of the start is done
}

// workers are the parts that work in the background.
type workers struct {
	pack       *pack.Packer
	throttle   *throttle.Throttle // nil: packing does not leave processors to other programs
	bases      *bases.Finder      // nil: nothing is stored against an earlier version
	queue      *queue.Queue
	hot        *residency.LRU
	hydrator   *residency.Hydrator
	giver      *residency.Giver
	hold       *residency.Hold
	sums       *idle.Checksums
	ids        *identifier
	keeper     *maintenance.Keeper
	durability durability
}

// mount is how a volume is mounted.
type mount struct{ point, mode, reason string }

// mount is how the volume is mounted; empty when it is not.
func (v *Volume) mount() mount {
	if m := v.mounted.Load(); m != nil {
		return *m
	}
	return mount{}
}

// Open opens a store. The error is a *LockedError when another process has it open. It wraps ErrNotStore when
// there is none, and cas.ErrNewer when a newer program wrote it.
func Open(o Options) (*Volume, error) {
	o.complete()
	var folder *disk.Folder
	var err error
	if o.Create {
		folder, err = tree.OpenOrCreate(o.Dir, o.Foreign, o.Now())
	} else {
		folder, err = tree.OpenStore(o.Dir, o.Foreign)
	}
	if err != nil {
		return nil, err
	}
	return openIn(folder, o)
}

// openIn opens the store in a folder, which it closes at the end.
func openIn(folder *disk.Folder, o Options) (*Volume, error) {
	format, err := tree.ReadFormat(folder)
	if err == nil {
		err = tree.CheckAttributes(folder)
	}
	var lock *tree.Lock
	if err == nil {
		lock, err = acquire(folder, o)
	}
	if err != nil {
		folder.Close()
		return nil, err
	}
	v := &Volume{
		storage: storage{
			folder: folder, readOnly: o.ReadOnly, now: o.Now, report: o.Log, id: format.ID, lock: lock,
			reserve: queue.NewReserve(folder, o.Disk, o.Log), rules: live.Open(folder, o.ReadOnly),
		},
		started: o.Now(), surveyed: make(chan struct{}),
	}
	v.durability.v, v.durability.every = v, syncEvery
	if !o.ReadOnly {
		v.reserve.Keep()
	}
	if err := v.open(o); err != nil {
		ending{v}.leave() // a mount that the store is held for may be there
		return nil, err
	}
	return v, nil
}

// open makes the parts, each after those that it needs.
func (v *Volume) open(o Options) error {
	if o.HotSize < 0 {
		o.HotSize = DefaultHotSize(v.folder.Here())
	}
	if o.MaxUnpacked == 0 {
		o.MaxUnpacked = queue.DefaultMaxUnpacked(v.folder.Here())
	}
	v.openSteps(o)
	v.usage = usage.New()
	if err := v.storage.open(o, v.usage.Watch); err != nil {
		return err
	}
	v.openArtifacts()
	v.openContent(o)
	v.content.Doubt.Tell = func() { _ = v.lock.Fails() } // without it a power cut alone leaves it unknown
	if err := v.openNames(o); err != nil {
		return err
	}
	v.openWorkers(o)
	v.steps.Open(v.names.RootFd())
	v.openInspect(o)
	v.openModels(o)
	v.openVirtual(o)
	v.openPasses()
	v.usage.Start(counted(v))
	v.sharing.open(v, o)
	return v.recover(o)
}

// recover repairs the store after an unclean end, and starts the background work.
func (v *Volume) recover(o Options) error {
	resume := o.Resume
	before := v.lock.Before
	s := &maintenance.Survey{Passes: v.passes, Repair: !before.Clean && before.PID != 0, Still: o.Still}
	v.survey = s
	s.Stop = func() bool { // a store is closed in order when all of it is repaired
		return v.abandoned.Load() || v.closing.Load() && !s.Repair
	}
	if v.content.Unclean = s.Repair; s.Repair {
		v.content.Miss()
	}
	if s.Repair {
		s.Unbelieved = !v.lock.Same()
	}
	if resume != nil {
		if s.Unbelieved {
			return errors.New("the disk that the store lies on was mounted again since the mount was made: unmount it, and mount it again")
		}
		if err := resume(v); err != nil {
			return err
		}
		ask := func() error { return unix.Syncfs(v.lock.Fd()) }
		v.durability.ofBefore.CompareAndSwap(nil, &ask)
	} else if s.Repair {
		s.Unbelieved = s.Unbelieved || before.Failed
	}
	// Only a local copy that is not to be believed keeps requests waiting: what a kill cut off is read by
	// its manifest.
	beside := resume != nil || !s.Unbelieved
	if s.Repair && !beside {
		if err := v.repair(s); err != nil {
			return err
		}
	}
	if s.Repair && resume == nil {
		v.recovery = s
	}
	if s.Repair && (resume != nil || before.Doubt != "") {
		// Not before the files are known that the kernel reads by itself.
		v.durability.takeDoubt(before)
	}
	if !o.Still {
		v.giver.Start()
	}
	if !v.readOnly && !o.Still {
		v.queue.Start()
		v.models.Start()
		v.hot.Start()
		v.hydrator.Start()
		v.sums.Start()
		v.ids.Start()
		v.keeper.Start(v.surveyed)
		v.durability.start()
		v.sharing.start()
	}
	switch {
	case s.Repair && beside:
		go func() {
			defer close(v.surveyed)
			if err := v.repair(s); err != nil {
				v.report(slog.LevelError, "the next mount looks at every file again", "reason", err)
			}
		}()
	case s.Repair || o.Still || before.PID == 0 && v.empty():
		close(v.surveyed)
	default:
		go func() {
			defer close(v.surveyed)
			s.Run()
		}()
	}
	return nil
}

// repair repairs the store after an unclean end.
func (v *Volume) repair(s *maintenance.Survey) error {
	s.Run()
	v.hot.Grew.Store(true) // what was made hollow has to be durable, too, before the end is clean
	if s.Unbelieved && s.Blind() {
		v.content.Doubt.Store(true)
	} else if err := v.lock.Trust(); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	v.report(slog.LevelWarn, s.Repaired())
	return nil
}

// Names are the mount's names, for the side that mounts the volume.
func (v *Volume) Names() *names.Names { return v.names }

// Folder is the store's folder, for what else is done in it until Close.
func (v *Volume) Folder() *disk.Folder { return v.folder }

// KeepChecks has a volume that is opened to be read write down when it was checked, and what was found. It is
// called before the first pass.
func KeepChecks(v *Volume) { v.passes.Last.Beside = v.readOnly }

// Attach connects the volume with the kernel that it is mounted by. passthrough reports whether the kernel
// itself may read and write plain and resident files. mode and reason are for Status. What rules hold is
// hydrated from now on: a command that opens a store for itself does not wait for that.
func (v *Volume) Attach(k content.Kernel, mountpoint string, passthrough bool, mode, reason string) {
	v.content.SetKernel(k)
	v.mounted.Store(&mount{mountpoint, mode, reason})
	v.content.Passthrough.Store(passthrough)
	if !v.readOnly && !v.survey.Still {
		v.hold.Start()
	}
}
