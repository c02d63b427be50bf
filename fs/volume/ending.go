package volume

import (
	"context"
	"errors"

	"ckptfs/fs/names"
)

// Close ends the background work and the use of the store. Files that were not packed stay plain, and are
// packed after the next start. ctx is not used: packing stops between chunks.
func (v *Volume) Close(context.Context) error {
	e := ending{v}
	e.stop()
	var err error
	if !v.readOnly {
		err = v.durability.finish()
	}
	return errors.Join(err, e.shut(err == nil && v.idle() && !v.content.Doubt.Load()))
}

// Abandon ends what Open began, for a process that could not take the mount over after all (Options.Resume).
// The store stays as after a kill, and locked, for the next one to take the mount over.
func (v *Volume) Abandon() {
	v.abandoned.Store(true)
	e := ending{v}
	e.stop()
	e.leave()
}

// ending is the end of the use of a volume.
type ending struct{ v *Volume }

// stop ends the background work.
func (e ending) stop() {
	v := e.v
	v.closing.Store(true)
	<-v.surveyed
	v.keeper.Stop()
	v.giver.Stop()
	v.artifacts.Stop()
	v.models.Stop() // before what asks it for its records
	v.usage.Stop()
	v.sharing.stop()
	if v.readOnly {
		return
	}
	v.durability.stop()
	v.sums.Stop()
	v.ids.Stop()
	v.queue.Stop()
	v.virtual.Close()
	if !v.abandoned.Load() {
		v.models.Finish()
	}
	v.content.Ending.Store(true)
	v.hold.Stop()
	v.hydrator.Stop()
	v.hot.Stop()
}

// idle reports whether no handle is left that could still write.
func (v *Volume) idle() bool {
	idle := true
	v.names.Each(func(n *names.Node) {
		if f := n.File(); f != nil {
			f.Lock()
			idle = idle && f.StateLocked().Writers == 0
			f.Unlock()
		}
	})
	return idle
}

// shut closes what is open, and gives the store up. clean: there is nothing to repair at the next start.
func (e ending) shut(clean bool) error {
	v := e.v
	if h, ok := v.models.Known(); ok && clean {
		v.lock.Leave(v.folder, h)
	}
	err := e.close()
	return errors.Join(err, v.lock.Release(clean && err == nil), v.folder.Close())
}

// leave closes what is open, and leaves the store to the process that has its lock, too.
func (e ending) leave() { _ = errors.Join(e.close(), e.v.lock.Abandon(), e.v.folder.Close()) }

// close closes what is open but the lock and the folder.
func (e ending) close() error {
	v := e.v
	err := errors.Join(v.sharing.close(), v.storage.close())
	if v.names != nil {
		v.names.Close()
	}
	if v.steps != nil {
		err = errors.Join(err, v.steps.Close())
	}
	return err
}
