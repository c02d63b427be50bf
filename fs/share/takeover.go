package share

import (
	"fmt"
	"slices"
	"time"

	"ckptfs/cas/remote/record"
	"ckptfs/fs/names"
	"ckptfs/fs/share/known"
	"ckptfs/fs/tree"
)

// modeOf is the mode that a name gets here: a folder's owner may always make names in it.
func modeOf(e *record.Entry) uint32 {
	if e.Kind == record.KindFolder {
		return uint32(e.Mode) | 0o700
	}
	return uint32(e.Mode)
}

// sameAttributes reports whether a name with the bytes of an entry has its attributes, as far as it can: a
// link has none, and a folder's time is its own on each machine.
func sameAttributes(has, e *record.Entry) bool {
	switch e.Kind {
	case record.KindFolder:
		return uint32(has.Mode) == modeOf(e) && slices.Equal(has.Attrs, e.Attrs)
	case record.KindFile:
		return has.Mode == e.Mode && has.MTime == e.MTime
	}
	return true
}

// takeOver gives a name, which nobody changed here, the attributes that were published with the bytes that it
// has, and looks at it again.
func (p *pull) takeOver(l *looker, n *names.Node, has, e *record.Entry) (look known.Sum, err error) {
	mode := modeOf(e)
	set := &tree.SetAttr{Mode: &mode}
	if e.Kind == record.KindFile {
		mtime := tree.TimespecOf(time.Unix(0, e.MTime))
		set.Mtime = &mtime
	}
	err = p.lazy.quietly(e.Path, func() error {
		_, err := p.o.Tree.Setattr(n, set)
		return err
	})
	if err != nil {
		return look, err
	}
	if e.Kind == record.KindFolder {
		if err := setAttrs(n, has.Attrs, e.Attrs); err != nil {
			return look, err
		}
	}
	p.o.Kernel().InvalidateData(n.ID(), -1, 0)
	st, err := p.stepAt(e.Path) // its metrics may be attributes
	if err == nil {
		_, look, err = l.entry(n, e.Path, st, nil)
	}
	return look, err
}

// setAttrs gives a folder attributes in place of those that it has.
func setAttrs(n *names.Node, has, want []record.Attr) error {
	for _, a := range want {
		if slices.Contains(has, a) {
			continue
		}
		if err := n.SetXattr(a.Name, []byte(a.Value), 0); err != nil {
			return fmt.Errorf("attribute %s: %w", a.Name, err)
		}
	}
	for _, a := range has {
		named := func(b record.Attr) bool { return a.Name == b.Name }
		if slices.ContainsFunc(want, named) {
			continue
		}
		if err := n.RemoveXattr(a.Name); err != nil {
			return fmt.Errorf("attribute %s: %w", a.Name, err)
		}
	}
	return nil
}
