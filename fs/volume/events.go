package volume

import (
	"ckptfs/cas"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/steps"
)

// events is the content.Events of a volume: the one place where a change of one file reaches the other parts.
// File.mu is held in all of them.
type events struct{ v *Volume }

func (e events) Writing(f *content.File) { e.v.steps.Begin(f.Node().Ino()) }

func (e events) Written(f *content.File, torn bool) {
	ino := f.Node().Ino()
	e.v.steps.End(ino, torn)
	e.v.usage.Changed(ino)
	e.v.sharing.touch(nodeOf(f))
}

func (e events) Dirty(f *content.File) { e.v.queue.Add(f) }

func (e events) Plain(f *content.File) {
	e.v.queue.NotePlain(f)
	e.v.sums.Add(f)
	e.v.sharing.touch(nodeOf(f))
}

func (e events) Packed(f *content.File) {
	e.v.queue.NotePacked()
	e.v.notePacked(nodeOf(f))
}

func (e events) Unpacked(f *content.File, before cas.Hash) {
	e.v.keeper.Removed()
	if !f.StateLocked().Record.Remote { // what is stored against it would need bases that are not here
		e.v.bases.NotePath(f.Path(), before)
	}
}

func (e events) Resident(f *content.File, bytes int64) {
	e.v.usage.Changed(f.Node().Ino())
	if bytes > 0 {
		e.v.hot.Add(f, bytes)
		return
	}
	e.v.hot.Remove(f.Node().Ino())
	if f.StateLocked().Record.Hollow {
		e.v.hot.Missed(f)
	}
}

func (e events) Opened(f *content.File, opens int) {
	if !f.StateLocked().Record.Hollow {
		e.v.hot.Touch(f)
	} else if opens > 1 { // it proved hot
		e.v.hydrator.Add(f)
	}
}

func (e events) Closed(f *content.File, read int64) {
	if read > f.StateLocked().PackedSize/2 { // it proved hot
		e.v.hydrator.Add(f)
	}
}

func (e events) Idle(f *content.File) {
	e.v.hot.Released(f)
	if content.ReadOnce(f) {
		e.v.giver.Add(f)
	}
}

func (e events) Lost(f *content.File, why error) { e.v.queue.Lost(f, why) }

func (e events) Unsummed(f *content.File) { e.v.sums.Add(f) }
func (e events) Unsynced(*content.File)   { e.v.hot.Grew.Store(true) }

// notePacked notes that a file got a manifest.
func (v *Volume) notePacked(n *names.Node) {
	if !n.Below(steps.Dir) {
		return
	}
	v.sharing.touch(n)
	v.steps.Changed(n.Ino())
	v.models.Rouse()
}

// nodeOf is the node of a file.
func nodeOf(f *content.File) *names.Node { return f.Node().(*names.Node) }
